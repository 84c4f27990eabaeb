"""What tasks are made of: what each says of data, outputs, loss and metrics, histograms, tallies."""
