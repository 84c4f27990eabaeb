"""What happens in a run, decided: an event goes in, effects come out. Pure."""
