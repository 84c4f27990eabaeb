"""What lies beside the rows in a run directory: options, checkpoints, packages, spooled updates."""
