"""Reads and writes Hugging Face folders: weights, tokenizers, and vocabularies of other models."""
