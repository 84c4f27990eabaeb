"""The generated messages and services of the wire; `proto/generate.py` writes them from `proto/`."""
