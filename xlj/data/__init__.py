"""From text to batches: sources, vocabulary, row store, and the deterministic batch of a step."""
