"""Speeds of this machine, and of the libraries that do the same, side by side in one run."""
