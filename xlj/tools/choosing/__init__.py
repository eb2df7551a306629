"""Chooses a recipe for languages, text, sentence pairs and hardware (`xlj.recipes --for`)."""
