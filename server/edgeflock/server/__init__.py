"""The aggregator: one process serves one run."""
