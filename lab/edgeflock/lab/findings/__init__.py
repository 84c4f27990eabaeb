"""What the runs of a grid say together: results, groups over seeds, verdicts, tables and notes."""
