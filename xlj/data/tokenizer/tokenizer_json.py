"""Reads a Hugging Face `tokenizer.json`, with its ids permuted into xlj's layout."""

import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from xlj.config import ConfigError
from xlj.data.ragged import Ragged
from xlj.data.tokenizer.layout import (
    MASK,
    ROLES,
    SPECIALS,
    UNK,
    Codec,
    Markers,
    of_native,
    word_prefix,
)
from xlj.io import json_file
from xlj.io.quiet import quiet
from xlj.io.quoting import shortened

BERT_SPECIALS = ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
"""BERT's names for `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>`."""

PARALLEL_SEPARATOR = "<|parallel_sep|>"
"""EuroBERT's token between a sentence and its translation."""

_NAMES = {
    "bos": ("<s>", "[CLS]", "<bos>", "<|begin_of_text|>"),
    "pad": ("<pad>", "[PAD]"),
    "eos": ("</s>", "[SEP]", "<eos>", "<|end_of_text|>"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]", "<|mask|>"),
}
"""Names of special tokens, used for roles that neither the file nor its folder assigns."""

_ROLE_PREFIX = "xlj:"
"""Prefix of a role in the names of extra entries of a template's special tokens; such an entry
assigns a token to the role. The template does not use the entry, so the library's results do not
change. No other part of the file may contain unknown entries."""

_A = {"Sequence": {"id": "A", "type_id": 0}}
_B = {"Sequence": {"id": "B", "type_id": 1}}

_PROBE = "a \u16a0\ue000"
"""Text with characters that are in hardly any vocabulary."""


def is_tokenizer_json(model: bytes) -> bool:
    """Whether the bytes are JSON; no SentencePiece model starts with a brace."""
    return model.startswith(b"{")


def read(model: bytes) -> Codec:
    """Reads a tokenizer; moves the special tokens and then `PARALLEL_SEPARATOR` to their places.

    All other pieces keep the order of the file. The special tokens are those that the file assigns
    (`_assigned_specials`), or else tokens with known names. Truncation, padding and added special
    tokens are turned off. A special token that appears in the text ("[MASK]") is encoded like other
    text; if the model itself has it as a piece, it becomes `<unk>`.

    Raises:
      ConfigError: if the `tokenizers` library cannot read the file, a special token is missing, ids
        have gaps, or its marker of words is unknown. The caller adds the file name.
    """
    tokenizer = _tokenizer(model)
    description = json_file.parse(model, "tokenizer.json")
    ids = tokenizer.get_vocab(with_added_tokens=True)
    specials = _specials(description, ids)
    by_id = _in_order(ids)
    markers = _markers(tokenizer.model, description)
    special_ids = tuple(None if name is None else ids[name] for name in specials)
    has_separator = _flags(description).get(PARALLEL_SEPARATOR, False)
    placed = _own_ids(special_ids)
    middle = [ids[PARALLEL_SEPARATOR]] if has_separator else []
    taken = [i for i in (*placed, *middle) if i >= 0]
    others = np.setdiff1d(np.arange(len(by_id)), taken)
    native_ids = np.concatenate([placed[:-1], middle, others, placed[-1:]]).astype(np.int32)

    of_text = of_native(native_ids)
    of_text[taken] = UNK
    of_masked_text = of_text.copy()
    of_masked_text[placed[-1]] = len(native_ids) - 1

    def encode(lines: Sequence[str]) -> Ragged:
        encodings = tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)
        return Ragged.of([encoding.ids for encoding in encodings])

    read_masked = _mask_reader(description, by_id[placed[-1]], placed[-1])

    def encode_masked(text: str) -> np.ndarray:
        return of_masked_text.take(np.array(read_masked(text), np.int32))

    def encode_with_spans(lines: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        encodings = tokenizer.encode_batch(list(lines), add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in encodings]

    mark = {"sentencepiece": "\u2581", "byte_bpe": "\u0120"}.get(markers, "")
    of_a = tokenizer.encode("a", add_special_tokens=False).tokens
    learned = (by_id[i] for i in native_ids[len(SPECIALS) : -1])
    return Codec(
        pieces=(*SPECIALS, *learned, MASK),
        native_ids=native_ids,
        native_specials=specials,
        native_special_ids=special_ids,
        has_separator=has_separator,
        markers=markers,
        of_text=of_text,
        word_prefix=word_prefix(of_a, mark) if mark else "",
        encode=encode,
        encode_masked=encode_masked,
        encode_with_spans=encode_with_spans,
    )


def with_specials(model: bytes, named: Mapping[str, Sequence[str]]) -> bytes:
    """Adds the special tokens that a folder names to a tokenizer.json.

    It then needs no other file to name them. It encodes text as before, and roles that it already
    assigns do not change. Returns the same bytes if there is nothing to add.

    Args:
      named: tokens for some of `ROLES`; the first token that the file contains is used.

    Raises:
      ConfigError: if the library cannot read the file. The caller adds the file name.
    """
    tokenizer = _tokenizer(model)
    description = json_file.parse(model, "tokenizer.json")
    ids = tokenizer.get_vocab(with_added_tokens=True)
    known = _assigned_specials(description, ids)
    by_name = _by_name(description, ids)
    add: dict[str, str] = {}
    for role, tokens in named.items():
        token = next((token for token in tokens if token in ids), None)
        if token and role not in known and token != by_name.get(role):
            add[role] = token
    if not add:
        return model
    template = next(_templates(description.get("post_processor")), None)
    if template is None:
        template = {"type": "TemplateProcessing", "single": [_A], "pair": [_A, _B]}
        template["special_tokens"] = {}
        own = description.get("post_processor")
        both = {"type": "Sequence", "processors": [template, own]}
        description["post_processor"] = both if own else template
    for role, token in add.items():
        name = _ROLE_PREFIX + role
        template["special_tokens"][name] = {"id": name, "ids": [ids[token]], "tokens": [token]}
    return json.dumps(description, ensure_ascii=False, indent=2).encode()


def frame_of(model: bytes) -> str:
    """Describes the special tokens around a sentence "...", such as `[CLS] ... [SEP]`.

    They are those of the post-processor of a tokenizer.json.
    """
    processor = json_file.parse(model, "tokenizer.json").get("post_processor")
    for part in _processors(processor):
        if part["type"] in ("BertProcessing", "RobertaProcessing"):
            return f"{part['cls'][0]} ... {part['sep'][0]}"
    for template in _templates(processor):
        parts = (next(iter(part.items())) for part in template["single"])
        tokens = (
            ["..."] if kind == "Sequence" else template["special_tokens"][entry["id"]]["tokens"]
            for kind, entry in parts
        )
        return " ".join(itertools.chain.from_iterable(tokens))
    return "..."


@contextmanager
def convert_errors(problem: str) -> Iterator[None]:
    """Converts errors of the `tokenizers` library to a one-line `ConfigError`, and silences it.

    The library raises plain `Exception` for files that it rejects. It panics on some damaged files,
    and Rust prints a note to stderr.

    Args:
      problem: the start of the message; the library's error follows in parentheses.

    Raises:
      ConfigError: for all exceptions except a `ConfigError`, an interrupt or an exit.
    """
    try:
        with quiet():
            yield
    except ConfigError:
        raise
    except BaseException as error:
        # PyO3's PanicException is not an Exception, and cannot be imported.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ConfigError(f"{problem} ({shortened(str(error))})") from None


def _tokenizer(model: bytes) -> Any:
    import tokenizers

    with convert_errors(f"cannot be read as tokenizer.json by tokenizers {tokenizers.__version__}"):
        tokenizer = tokenizers.Tokenizer.from_str(model.decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        tokenizer.encode(_PROBE)  # detects further damage
    return tokenizer


def _mask_reader(
    description: Mapping[str, Any], mask: str, mask_id: int
) -> Callable[[str], list[int]]:
    """Returns a function that encodes text and recognizes the mask, but no other special token.

    The library's `encode_special_tokens` ignores all tokens that are flagged as special, so the
    mask is not flagged here.
    """
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    known = {token["content"]: token for token in description.get("added_tokens") or ()}
    known[mask] = {"id": mask_id, "content": mask, **plain, **known.get(mask, {}), "special": False}
    tokens = sorted(known.values(), key=lambda token: token["id"])

    @functools.cache  # loading takes seconds, and is rarely needed
    def reader() -> Any:
        return _tokenizer(json.dumps({**description, "added_tokens": tokens}).encode())

    def encode(text: str) -> list[int]:
        return reader().encode(text.replace(MASK, mask), add_special_tokens=False).ids

    return encode


def _in_order(ids: Mapping[str, int]) -> list[str]:
    ordered = sorted(ids, key=ids.__getitem__)
    for i, piece in enumerate(ordered):
        if ids[piece] != i:
            raise ConfigError(
                f"has {len(ids)} pieces, but none or two with id {min(i, ids[piece])}; ids must "
                "run from 0 without gaps, so that each row of an embedding has one piece"
            )
    return ordered


def _specials(description: Mapping[str, Any], ids: Mapping[str, int]) -> tuple[str | None, ...]:
    """Returns the token of each of `ROLES`."""
    tokens = _by_name(description, ids) | _assigned_specials(description, ids)
    optional = {"pad", "unk"} if _reads_all(description, ids) else {"pad"}
    for role, names in _NAMES.items():
        if role not in tokens and role not in optional:
            raise ConfigError(
                f"has no {' or '.join(names[:2])} among its {len(ids)} pieces; if another token is "
                f"its {role} token, set {role}_token in the tokenizer_config.json in its folder"
            )
    if tokens["bos"] == tokens["eos"]:
        raise ConfigError(f"uses one token, {tokens['bos']}, for both the start and end of a text")
    return tuple(tokens.get(role) for role in ROLES)


def _by_name(description: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, str]:
    """Returns the tokens of roles by known names.

    Prefers tokens that are flagged as special, then added tokens: other pieces of that name may be
    ordinary text.
    """
    flags = _flags(description)
    known = {role: [name for name in names if name in ids] for role, names in _NAMES.items()}
    return {
        role: max(names, key=lambda name: (flags.get(name, False), name in flags))
        for role, names in known.items()
        if names
    }


def _own_ids(special_ids: Sequence[int | None]) -> list[int]:
    """Returns the file's ids for the places of the special tokens.

    -1 for `<pad>` and `<unk>` if there is no such token, or another role has it.
    """
    bos, pad, eos, unk, mask = (-1 if i is None else i for i in special_ids)
    pad = -1 if pad in (bos, eos, mask) else pad
    unk = -1 if unk in (bos, pad, eos, mask) else unk
    return [bos, pad, eos, unk, mask]


def _assigned_specials(description: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, str]:
    """Returns the tokens that the file itself assigns to roles.

    The template's tokens before and after a text are `bos` and `eos`. The model's token for unknown
    characters is `unk`. Further roles are those that `with_specials` wrote.
    """
    numbers: dict[str, int] = {}
    for processor in _processors(description.get("post_processor")):
        if processor["type"] in ("BertProcessing", "RobertaProcessing"):
            numbers |= {"bos": processor["cls"][1], "eos": processor["sep"][1]}
    for template in _templates(description.get("post_processor")):
        before, after = _around(template["single"])
        entries = {name: entry["ids"][0] for name, entry in template["special_tokens"].items()}
        for role, names in (("bos", before), ("eos", after)):
            if len(names) == 1:  # with several tokens, one may name a language
                numbers[role] = entries[names[0]]
        assigned = (name for name in entries if name.startswith(_ROLE_PREFIX))
        numbers |= {name.removeprefix(_ROLE_PREFIX): entries[name] for name in assigned}
    by_id = {number: piece for piece, number in ids.items()}
    tokens = {role: by_id[i] for role, i in numbers.items() if role in ROLES and i in by_id}
    model = description["model"]
    unknown = model.get("unk_token")
    if model.get("unk_id") is not None:
        unknown = model["vocab"][model["unk_id"]][0]
    return {"unk": unknown, **tokens} if unknown in ids else tokens


def _around(parts: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Returns the entries of special tokens that a template puts before and after a text."""
    kinds = [kind for part in parts for kind in part]
    names = [part["id"] for outer in parts for part in outer.values()]
    text = kinds.index("Sequence") if "Sequence" in kinds else len(kinds)
    return names[:text], names[text + 1 :]


def _processors(processor: Any) -> Iterator[dict[str, Any]]:
    """Yields a post-processor, or the processors of a sequence."""
    if processor and processor["type"] == "Sequence":
        for part in processor["processors"]:
            yield from _processors(part)
    elif processor:
        yield processor


def _templates(processor: Any) -> Iterator[dict[str, Any]]:
    return (part for part in _processors(processor) if part["type"] == "TemplateProcessing")


def _flags(description: Mapping[str, Any]) -> dict[str, bool]:
    """Returns whether each added token is flagged as special."""
    added = description.get("added_tokens") or ()
    return {token["content"]: token["special"] for token in added}


def _reads_all(description: Mapping[str, Any], ids: Mapping[str, int]) -> bool:
    """Whether no character is unknown, because the model has a piece for each byte."""
    if '"ByteLevel"' in _stages(description):
        return True
    fallback = description["model"].get("byte_fallback", False)
    return fallback and all(f"<0x{byte:02X}>" in ids for byte in range(256))


def _stages(description: Mapping[str, Any]) -> str:
    """Returns the normalizer, pre-tokenizer and decoder as JSON."""
    stages = [description.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")]
    return json.dumps(stages, ensure_ascii=False)


def _markers(model: Any, description: Mapping[str, Any]) -> Markers:
    kind = type(model).__name__
    used = _stages(description)
    if kind == "WordPiece" and model.continuing_subword_prefix == "##":
        return "wordpiece"
    if kind in ("BPE", "Unigram") and '"ByteLevel"' in used:
        return "byte_bpe"
    if kind in ("BPE", "Unigram") and "\u2581" in used:
        return "sentencepiece"
    raise ConfigError(
        f"has a {kind} model with an unknown marker of words; supported are WordPiece with ##, "
        "byte-level BPE, and BPE or Unigram with U+2581"
    )
