"""The tasks: one file each, found by its `TASK`; `kit` is what they are made of."""
