"""Checkpoints of Hugging Face folders, folders of checkpoints, and longer vocabularies."""
