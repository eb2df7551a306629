"""Evaluation: metrics that agree with the official ones, probes during training, and XTREME."""
