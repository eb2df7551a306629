"""Sweeps: many runs of one recipe."""
