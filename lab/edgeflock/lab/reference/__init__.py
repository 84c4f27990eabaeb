"""What there is to choose from: methods, options, models, data sets and how they are cut."""
