"""Turns text into batches: reading text, tokenizers, rows, and labelled examples."""
