"""The mathematics of word alignment on arrays: optimal transport, hidden Markov models, links."""
