"""What a run has learned and cost, in the formats of other programs."""
