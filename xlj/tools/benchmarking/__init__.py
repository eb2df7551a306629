"""Measures the speed of xlj and of other libraries that do the same work, in one command."""
