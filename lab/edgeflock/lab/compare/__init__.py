"""Comparisons: the cells of a grid run as processes, resumable, and told of in tables and pictures."""
