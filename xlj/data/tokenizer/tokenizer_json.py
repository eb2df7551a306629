"""A Hugging Face `tokenizer.json`, its ids permuted into xlj's layout."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from xlj.config import ConfigError
from xlj.data.ragged import Ragged
from xlj.data.tokenizer.layout import MASK, SPECIALS, UNK, Codec, Markers
from xlj.io import json_file
from xlj.io.quiet import quiet
from xlj.io.quoting import shortened

BERT_SPECIALS = ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
"""BERT's names of `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>`."""

_PROBE = "a \u16a0\ue000"
"""Text with characters that hardly any vocabulary has."""


def is_tokenizer_json(model: bytes) -> bool:
    """Whether these bytes are JSON; no SentencePiece model starts with a brace."""
    return model.startswith(b"{")


def read(model: bytes) -> Codec:
    """The specials come to their places, all else follows in the order of the file's ids.

    Nothing is cut, padded or added. A special token that stands in the text as a word ("[MASK]") is
    encoded as the text that it is; where the model itself knows it as a piece, it is `<unk>`.

    Raises:
      ConfigError: if the `tokenizers` library cannot read it, a special token is missing, ids have
        gaps, or the convention of its pieces is unknown; the message goes on from the file's name.
    """
    import tokenizers

    with explained(f"is not a tokenizer.json that tokenizers {tokenizers.__version__} reads"):
        tokenizer = tokenizers.Tokenizer.from_str(model.decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        tokenizer.encode(_PROBE)  # some damage shows only here
    ids = tokenizer.get_vocab(with_added_tokens=True)
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    specials = _specials(ids, added)
    by_id = _in_order(ids)
    taken = [ids[name] for name in specials]
    others = np.setdiff1d(np.arange(len(by_id)), taken)
    native_ids = np.concatenate([taken[:-1], others, taken[-1:]]).astype(np.int32)

    of_text = np.argsort(native_ids).astype(np.int32)
    of_text[taken] = UNK

    def encode(lines: Sequence[str]) -> Ragged:
        found = tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)
        return Ragged.of([one.ids for one in found])

    def encode_with_spans(lines: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        found = tokenizer.encode_batch(list(lines), add_special_tokens=False)
        return [(one.ids, one.offsets) for one in found]

    learned = (by_id[i] for i in native_ids[len(SPECIALS) : -1])
    return Codec(
        pieces=(*SPECIALS, *learned, MASK),
        native_ids=native_ids,
        native_specials=specials,
        markers=_markers(tokenizer.model, json_file.parse(model, "tokenizer.json")),
        of_text=of_text,
        encode=encode,
        encode_with_spans=encode_with_spans,
    )


@contextmanager
def explained(problem: str) -> Iterator[None]:
    """Turns what the `tokenizers` library raises in the block into one line, and keeps it quiet. It
    has no narrower class than `Exception` for a file that it refuses, and panics on some damaged
    ones, with a note of Rust's on stderr. `problem` says what is wrong then; the library's words
    follow in brackets.

    Raises:
      ConfigError: for whatever is raised but a `ConfigError`, an interrupt or an exit.
    """
    try:
        with quiet():
            yield
    except ConfigError:
        raise
    except BaseException as error:
        # PyO3's PanicException is no Exception, and cannot be imported.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ConfigError(f"{problem} ({shortened(str(error))})") from None


def _in_order(ids: Mapping[str, int]) -> list[str]:
    ordered = sorted(ids, key=ids.__getitem__)
    for i, piece in enumerate(ordered):
        if ids[piece] != i:
            raise ConfigError(
                f"has {len(ids)} pieces, and none or two with id {min(i, ids[piece])}; ids must "
                "run from 0 without gaps, so that each row of an embedding has its piece"
            )
    return ordered


def _specials(ids: Mapping[str, int], added: set[str]) -> tuple[str, str, str, str, str]:
    """The pieces for `<s>`, `<pad>`, `</s>`, `<unk>`, `<mask>`; an added token goes first, since
    one that is not may be an ordinary piece."""
    found = []
    for names in zip((*SPECIALS, MASK), BERT_SPECIALS, strict=True):
        known = [name for name in names if name in ids]
        if not known:
            raise ConfigError(f"has no {' or '.join(names)} among its {len(ids)} pieces")
        found.append(max(known, key=added.__contains__))
    first, pad, last, unknown, mask = found
    return first, pad, last, unknown, mask


def _markers(model: Any, description: Mapping[str, Any]) -> Markers:
    kind = type(model).__name__
    stages = [description.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")]
    used = json.dumps(stages, ensure_ascii=False)
    if kind == "WordPiece" and model.continuing_subword_prefix == "##":
        return "wordpiece"
    if kind in ("BPE", "Unigram") and '"ByteLevel"' in used:
        return "byte_bpe"
    if kind in ("BPE", "Unigram") and "\u2581" in used:
        return "sentencepiece"
    raise ConfigError(
        f"has a {kind} model that marks words in no known way: WordPiece with ##, byte-level BPE, "
        "and BPE or Unigram with U+2581 are read"
    )
