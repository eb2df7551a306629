"""Scores: metrics that agree with the official ones, probes while training, XTREME."""
