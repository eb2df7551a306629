"""Writes tokenizers of each family of models, trained on a little text."""

from decoding import decode

from xlj.interop import tokenizer_files


def folder_with_tokenizer(kind, path, vocabulary, first="<s>", second="<pad>"):
    """Writes a tokenizer of the kind that the architecture has; returns its vocabulary."""
    path.mkdir()
    if kind.startswith("XLM"):
        tokenizer_files.write(vocabulary, path, 64)
        return vocabulary
    from tokenizers import ByteLevelBPETokenizer, implementations

    lines = [decode(vocabulary, range(5, 300))] * 3
    if kind == "Roberta":
        tokenizer = ByteLevelBPETokenizer()
        special_tokens = [first, second, "</s>", "<unk>", "<mask>"]
        tokenizer.train_from_iterator(lines, vocab_size=320, special_tokens=special_tokens[:-1])
        tokenizer.add_special_tokens(special_tokens[-1:])
        tokenizer.save(str(path / "tokenizer.json"))
    else:
        tokenizer = implementations.BertWordPieceTokenizer()
        tokenizer.train_from_iterator(lines, vocab_size=300)
        tokenizer.save_model(str(path))
    return tokenizer_files.read(path)
