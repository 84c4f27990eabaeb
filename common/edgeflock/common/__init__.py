"""What both ends share: bundles, codecs, models, data sets, seeds, configuration, errors, logs."""
