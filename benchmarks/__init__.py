"""What edgeflock costs, each figure beside its baseline in the same run: `python -m benchmarks --help`."""
