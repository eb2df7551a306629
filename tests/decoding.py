"""Decodes token ids with the library of their vocabulary: sentencepiece or tokenizers."""

import functools

import sentencepiece
import tokenizers

from xlj.data.tokenizer.layout import BOS, EOS, PAD, UNK


def decode(vocabulary, ids):
    """Returns the text of token ids, without `<s>`, `<pad>`, `</s>` and `<mask>`."""
    ids = [int(i) for i in ids if int(i) not in {BOS, PAD, EOS, vocabulary.mask}]
    library = _library(vocabulary.model)
    if isinstance(library, tokenizers.Tokenizer):
        return library.decode(vocabulary.native_ids[ids].tolist(), skip_special_tokens=False)
    return library.decode([0 if i == UNK else i - 1 for i in ids])


@functools.lru_cache(maxsize=4)
def _library(model):
    if not model.startswith(b"{"):
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    tokenizer = tokenizers.Tokenizer.from_str(model.decode())
    tokenizer.encode_special_tokens = True
    return tokenizer
