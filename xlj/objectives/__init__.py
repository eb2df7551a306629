"""Objectives of pretraining and fine-tuning, one folder each: options, loss and head."""
