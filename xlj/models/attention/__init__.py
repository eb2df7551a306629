"""Attention as an ordered list of implementations, each of which computes or says why it cannot."""
