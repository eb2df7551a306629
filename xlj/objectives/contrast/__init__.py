"""Contrast of sentence vectors: ranks positives above negatives, or orders scored pairs."""
