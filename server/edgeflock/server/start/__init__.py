"""From options to a run in motion: checked, built, brought back to where it was, with its children."""
