"""Rows of tokens: packing, storing, and drawing the batch of each step."""
