"""What every command has: options from flags, variables and files; logs, a terminal, an ending."""
