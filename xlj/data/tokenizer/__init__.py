"""Vocabularies: text to ids, in one layout of ids."""
