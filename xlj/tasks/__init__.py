"""Defines the kinds of fine-tuning tasks, one per file: reading, rows, head, predictions,
metrics."""
