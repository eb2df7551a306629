"""Converts models: to and from Hugging Face folders, with more pieces, merged, or widened."""
