"""The file formats in which data sets are published."""
