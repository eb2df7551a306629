"""Word alignment with a trained encoder."""
