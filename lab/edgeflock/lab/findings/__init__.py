"""What the runs of a comparison say: numbers with intervals, tables, a verdict."""
