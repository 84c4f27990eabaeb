"""The models: one file each, made by its `make`; `kit` is what they are made of."""
