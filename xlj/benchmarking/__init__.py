"""Speeds of this machine; all print a line for each measurement."""
