"""Hugging Face folders, in and out."""
