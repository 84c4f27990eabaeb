"""The partition schemes: one file each, found by its `SCHEME`; `kit` is what they are made of."""
