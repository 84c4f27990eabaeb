"""What a run directory tells of its run, for everybody who reads it."""
