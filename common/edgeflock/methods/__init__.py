"""The methods: one module each, or a folder, both halves together; `kit` is what they are made of."""
