"""Sentence vectors with a trained encoder: retrieval, mining, embedding."""
