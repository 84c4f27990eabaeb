"""Certificates for a server and its devices, and the file by which a device joins."""
