"""Speeds of this machine, each in a file of its own; all print a line for each measurement."""
