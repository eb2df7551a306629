"""Sentence vectors of a trained encoder: embedding, retrieval, mining, pair scores."""
