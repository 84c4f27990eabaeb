"""What people see of a run: sentences, a line for each round, the table at the end."""
