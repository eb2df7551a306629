"""Logits over the vocabulary: cross-entropy and choice of tokens, in blocks of the vocabulary."""
