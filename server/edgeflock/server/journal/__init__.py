"""What was decided, spent and said, as rows: the only room that knows SQL."""
