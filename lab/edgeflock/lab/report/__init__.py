"""The report of runs and of comparisons: pages of numbers, tables and plots."""
