"""What a comparison is asked: a table of options with lists becomes cells, each one run."""
