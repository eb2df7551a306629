"""Self-training of word alignment on links that both directions agree on."""
