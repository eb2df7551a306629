"""The ids that every vocabulary of xlj shares: XLM-R's layout."""

BOS, PAD, EOS, UNK = 0, 1, 2, 3
"""`<s>`, `<pad>`, `</s>`, `<unk>`. Then come the pieces: SentencePiece's piece i >= 3 has id i + 1,
those of a tokenizer.json are in its order. `<mask>` is last."""

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
