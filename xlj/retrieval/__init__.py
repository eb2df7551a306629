"""Computes sentence vectors with a trained encoder, and uses them: retrieval, mining, pair
scores."""
