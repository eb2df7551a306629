"""Kinds of fine-tuning tasks, a file each: reading, rows, head, predictions, metrics."""
