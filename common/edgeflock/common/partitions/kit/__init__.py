"""What partitions are made of: a scheme, what it draws from, and who holds which samples."""
