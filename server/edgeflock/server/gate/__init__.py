"""A gate: a process that takes clients' calls and bytes for a coordinator, and decides nothing."""
