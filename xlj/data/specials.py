"""Ids of XLM-R's layout that every vocabulary here shares; `<mask>` is the last id."""

BOS = 0
"""`<s>`, the start of every example."""
PAD = 1
EOS = 2
"""`</s>`, the end of every sentence."""
UNK = 3
FIRST_PIECE = 4
"""The first id that is a piece of text; the last one is two before the vocabulary's size."""
