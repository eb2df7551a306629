"""Converts models to and from Hugging Face folders, adds pieces, merges models, and widens them."""
