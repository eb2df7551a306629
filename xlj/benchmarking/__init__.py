"""Measures speeds of xlj and of other libraries for the same work, side by side in one run."""
