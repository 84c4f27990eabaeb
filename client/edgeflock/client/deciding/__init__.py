"""What a client does next, and when it tries again. Pure."""
