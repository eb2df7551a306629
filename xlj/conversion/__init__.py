"""Checkpoints of Hugging Face folders and back; longer vocabularies, merged and larger models."""
