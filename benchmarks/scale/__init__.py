"""What a fleet costs as it grows: thousands of clients, several processes and machines, others beside us."""
