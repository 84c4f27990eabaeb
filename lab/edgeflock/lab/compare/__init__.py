"""Comparisons: cells of a grid run as processes, here or on a fleet, resumable, told in tables and plots."""
