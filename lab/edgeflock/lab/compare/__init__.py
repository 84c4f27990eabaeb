"""Grids of runs: what a table of options makes, run cell by cell, resumable."""
