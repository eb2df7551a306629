"""A Hugging Face `tokenizer.json`, its ids permuted into xlj's layout."""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlj.config import ConfigError
from xlj.data.rows.packing import Ragged
from xlj.data.tokenizer import spans
from xlj.data.tokenizer.codec import Codec, Markers
from xlj.data.tokenizer.layout import MASK, SPECIALS, UNK
from xlj.data.tokenizer.library_errors import explained
from xlj.io import json_file

_NAMES = (
    ("<s>", "[CLS]"),
    ("<pad>", "[PAD]"),
    ("</s>", "[SEP]"),
    ("<unk>", "[UNK]"),
    ("<mask>", "[MASK]"),
)

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
    native_ids = _permutation([ids[name] for name in specials], len(by_id))

    # Of text: the layout's specials are what text may not say.
    ours = np.empty(len(by_id), np.int32)
    ours[native_ids] = np.arange(len(by_id), dtype=np.int32)
    of_text = ours.copy()
    of_text[[ids[name] for name in specials]] = UNK

    def ragged(parts: Sequence[list[int]]) -> Ragged:
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        flat = np.fromiter(itertools.chain.from_iterable(parts), np.int32, int(lengths.sum()))
        return Ragged(of_text[flat], lengths)

    def encode(lines: Sequence[str]) -> Ragged:
        found = tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)
        return ragged([one.ids for one in found])

    def encode_with_spans(lines: Sequence[str]) -> tuple[Ragged, np.ndarray]:
        found = tokenizer.encode_batch(list(lines), add_special_tokens=False)
        return ragged([one.ids for one in found]), spans.array([one.offsets for one in found])

    def decode(wanted: list[int]) -> str:
        return tokenizer.decode(native_ids[wanted].tolist(), skip_special_tokens=False)

    learned = (by_id[i] for i in native_ids[len(SPECIALS) : -1])
    return Codec(
        pieces=(*SPECIALS, *learned, MASK),
        native_ids=native_ids,
        native_specials=specials,
        markers=_markers(tokenizer.model, json_file.parse(model, "tokenizer.json")),
        encode=encode,
        encode_with_spans=encode_with_spans,
        decode=decode,
    )


def _in_order(ids: Mapping[str, int]) -> list[str]:
    """Pieces by id."""
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
    for names in _NAMES:
        known = [name for name in names if name in ids]
        if not known:
            raise ConfigError(f"has no {' or '.join(names)} among its {len(ids)} pieces")
        found.append(max(known, key=added.__contains__))
    first, pad, last, unknown, mask = found
    return first, pad, last, unknown, mask


def _permutation(specials: Sequence[int], size: int) -> np.ndarray:
    """int32 [size]: the first four specials, all other ids in order, the last special."""
    others = np.setdiff1d(np.arange(size), specials)
    return np.concatenate([specials[:-1], others, specials[-1:]]).astype(np.int32)


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
