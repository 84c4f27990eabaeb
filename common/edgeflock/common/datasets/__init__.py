"""The data sets: one file each, found by its `SETS`; `kit` is what they are made of."""
