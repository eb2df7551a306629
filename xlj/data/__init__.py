"""From text to batches: text, tokenizers, rows, and labelled examples."""
