"""Emulated devices in network namespaces around one server, and what a grid of runs takes there."""
