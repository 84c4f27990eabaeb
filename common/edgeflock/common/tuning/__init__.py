"""How a model is trained beside its method: by which steps and rates, which parts, with which adapters."""
