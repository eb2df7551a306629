"""Evaluates models: metrics that agree with official scripts, probes in training, and XTREME."""
