"""Papers as files: settings, values and claims; what came of them here, and the verdict by their rules."""
