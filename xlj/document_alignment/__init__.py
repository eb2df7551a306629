"""Sentence alignment: which sentences of two documents translate each other."""
