"""Kinds of fine-tuning tasks, one per file: reading, rows, head, predictions and metrics."""
