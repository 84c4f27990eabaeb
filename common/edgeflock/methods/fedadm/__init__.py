"""FedADM: its two halves, its control, its memory and what it measures."""
