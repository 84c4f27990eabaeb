"""What a run costs and may cost: columns, bytes, seconds, budgets, targets. Pure."""
