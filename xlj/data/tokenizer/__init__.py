"""Vocabularies, which convert text to ids in one layout."""
