"""Loading a trained encoder, and running it on many rows."""
