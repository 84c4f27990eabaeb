"""Asking a run, and telling it what to do, while it is going on or after."""
