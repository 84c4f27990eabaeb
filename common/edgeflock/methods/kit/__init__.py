"""What methods are made of: their interface, the local step loop, options, state and sums."""
