"""Figures of a report: what a run costs and learns, drawn."""
