"""Aligns words of sentence pairs with a trained encoder."""
