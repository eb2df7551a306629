"""Cross-attention masked language modelling, CAMLM (ERNIE-M)."""
