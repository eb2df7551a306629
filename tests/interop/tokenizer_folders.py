"""Tokenizers of each family, trained on a little text."""

from decoding import decode

from xlj.interop import tokenizer_files


def folder_with_tokenizer(kind, path, vocabulary, first="<s>", second="<pad>"):
    """Writes a tokenizer of the architecture's kind, and returns the vocabulary that it is."""
    path.mkdir()
    if kind.startswith("XLM"):
        tokenizer_files.write(vocabulary, path, 64)
        return vocabulary
    from tokenizers import ByteLevelBPETokenizer, implementations

    lines = [decode(vocabulary, range(5, 300))] * 3
    if kind == "Roberta":
        made = ByteLevelBPETokenizer()
        special = [first, second, "</s>", "<unk>", "<mask>"]
        made.train_from_iterator(lines, vocab_size=320, special_tokens=special[:-1])
        made.add_special_tokens(special[-1:])
        made.save(str(path / "tokenizer.json"))
    else:
        made = implementations.BertWordPieceTokenizer()
        made.train_from_iterator(lines, vocab_size=300)
        made.save_model(str(path))
    return tokenizer_files.read(path)
