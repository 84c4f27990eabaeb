"""What a coordinator answers gates, the processes that take clients' calls and bytes for it."""
