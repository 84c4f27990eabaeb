"""Packages of plug-ins to begin with: the code, its entry point and its own tests, written for a name."""
