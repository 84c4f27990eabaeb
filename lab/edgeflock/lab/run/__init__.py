"""A run on this machine: real processes, watched to the end."""
