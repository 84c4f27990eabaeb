"""Random schedules of combined faults, each made from a seed, played against a real federation and judged."""
