"""Runs from Python: started, opened, and told of as data frames and pictures."""
