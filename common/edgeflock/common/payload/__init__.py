"""Numbers as bytes: layouts, packages, codecs, checksums, tensor files."""
