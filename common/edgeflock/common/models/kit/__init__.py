"""What models are made of: what each offers, layers, shapes, arguments, its size, initial values."""
