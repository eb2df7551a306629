"""Masks tokens, for all objectives that do."""
