"""A run on this machine: a server and its clients as real processes, watched to the end."""
