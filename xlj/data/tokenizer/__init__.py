"""Vocabularies: text to ids and back, in one layout of ids."""
