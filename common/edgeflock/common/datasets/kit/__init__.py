"""What data sets are made of: labelled parts, their files, downloads, a client's own data, augmentation."""
