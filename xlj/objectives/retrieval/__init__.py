"""Sentence retrieval: contrasts translations with the other sentences of the batch."""
