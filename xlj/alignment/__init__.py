"""Word alignment on arrays: optimal transport, extraction of links, alignment error rate."""
