"""Codecs: how a bundle's numbers are written as bytes, one file each; `coding` chooses among them."""
