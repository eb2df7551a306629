"""Adapts a model to more languages: pieces, training, measures, report, exported folder."""
