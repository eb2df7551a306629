"""From text to batches: sources, vocabulary, rows, row store and the deterministic batch of a step."""
