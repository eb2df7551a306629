"""Masked language modelling: MMLM on monolingual rows, TLM on rows of sentence pairs (XLM)."""
