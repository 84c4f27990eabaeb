"""What data sets are made of: labelled parts, where their files lie, downloads, a client's own data, augmentation."""
