"""Reads a Hugging Face `tokenizer.json`, with its ids permuted into xlj's layout."""

import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from xlj import families
from xlj.config import ConfigError
from xlj.data.tokenizer.layout import (
    MASK,
    ROLES,
    SPECIALS,
    UNK,
    Codec,
    Markers,
    Ragged,
    invert_native_ids,
    word_prefix,
)
from xlj.io import json_file
from xlj.io.quiet import quiet
from xlj.io.quoting import shortened

BERT_SPECIALS = ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
"""The names of `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>` in BERT."""

_NAMES = {
    "bos": ("<s>", "[CLS]", "<bos>", "<|begin_of_text|>"),
    "pad": ("<pad>", "[PAD]"),
    "eos": ("</s>", "[SEP]", "<eos>", "<|end_of_text|>"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]", "<|mask|>"),
}
"""Usual names of the special token of each role. They are used for a role that neither the file nor
the other files of its folder assign."""

_ROLE_PREFIX = "xlj:"
"""Prefix of the names of entries that `add_specials` adds to the special tokens of a template.

A template is a post-processor of the type `TemplateProcessing`. The entry `xlj:ROLE` assigns a
token to a role. The template does not use the entry, so the library encodes text as before. The
library does not accept unknown entries in other parts of a file."""

_FIRST_SEQUENCE = {"Sequence": {"id": "A", "type_id": 0}}
_SECOND_SEQUENCE = {"Sequence": {"id": "B", "type_id": 1}}

_PROBE = "a \u16a0\ue000"
"""Text with characters that very few vocabularies contain."""


def is_tokenizer_json(model: bytes) -> bool:
    """Whether the bytes are JSON; no SentencePiece model starts with a brace."""
    return model.startswith(b"{")


def read(model: bytes) -> Codec:
    """Reads a tokenizer, with ids in the layout of xlj.

    The special tokens and a separator (`Family.separator`) get the ids of the layout; all other
    pieces keep their order. The special tokens are the tokens that the file assigns to roles, or
    else tokens with usual names.

    The tokenizer does not truncate, pad, or add special tokens. The name of a special token in a
    text, such as "[MASK]", is encoded like other text. If the result is nevertheless the special
    token, because the model has the name as a piece, our id of it is `<unk>`.

    Args:
      model: the bytes of the file.

    Raises:
      ConfigError: if the `tokenizers` library cannot read the file, a special token is missing, one
        token marks both the start and the end of a text, the ids have gaps, or the markers of words
        are unknown. The caller puts the file name before the message.
    """
    tokenizer = load_tokenizer(model)
    description = json_file.parse(model, "tokenizer.json")
    ids = tokenizer.get_vocab(with_added_tokens=True)
    specials = _find_specials(description, ids)
    by_id = _sort_by_id(ids)
    markers = _detect_markers(tokenizer.model, description)
    special_ids = tuple(None if name is None else ids[name] for name in specials)
    is_special = _special_flags(description)
    separator = next((name for name in families.separators() if is_special.get(name)), "")
    specials_by_role = _native_special_ids(special_ids)
    separator_ids = [ids[separator]] if separator else []
    fixed_ids = [i for i in (*specials_by_role, *separator_ids) if i >= 0]
    ordinary = np.setdiff1d(np.arange(len(by_id)), fixed_ids)
    native_mask = specials_by_role[-1]
    native_ids = np.concatenate(
        [specials_by_role[:-1], separator_ids, ordinary, specials_by_role[-1:]]
    ).astype(np.int32)

    our_ids = invert_native_ids(native_ids)
    our_ids[fixed_ids] = UNK
    our_ids_with_mask = our_ids.copy()
    our_ids_with_mask[native_mask] = len(native_ids) - 1

    def encode(lines: Sequence[str]) -> Ragged:
        encodings = tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)
        return Ragged.of([encoding.ids for encoding in encodings])

    encode_natively = _mask_encoder(description, by_id[native_mask], native_mask)

    def encode_masked(text: str) -> np.ndarray:
        return our_ids_with_mask.take(np.array(encode_natively(text), np.int32))

    def encode_with_spans(lines: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        encodings = tokenizer.encode_batch(list(lines), add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in encodings]

    mark = {"sentencepiece": "\u2581", "byte_bpe": "\u0120"}.get(markers, "")
    pieces_of_a = tokenizer.encode("a", add_special_tokens=False).tokens
    learned_pieces = (by_id[i] for i in native_ids[len(SPECIALS) : -1])
    return Codec(
        pieces=(*SPECIALS, *learned_pieces, MASK),
        native_ids=native_ids,
        native_specials=specials,
        native_special_ids=special_ids,
        separator=separator,
        markers=markers,
        our_ids=our_ids,
        word_prefix=word_prefix(pieces_of_a, mark) if mark else "",
        encode=encode,
        encode_masked=encode_masked,
        encode_with_spans=encode_with_spans,
    )


def add_specials(model: bytes, named: Mapping[str, Sequence[str]]) -> bytes:
    """Adds roles of special tokens to a tokenizer.json, so that the file itself assigns them.

    Other files of its folder, such as tokenizer_config.json, name these tokens. The new file
    encodes text like the old file. Roles that the old file assigns do not change.

    Args:
      model: the bytes of the tokenizer.json.
      named: candidate tokens for some of `ROLES`; of the candidates for a role, the first that the
        file contains is used.

    Returns:
      The bytes of the new file; the unchanged bytes if there is no role to add.

    Raises:
      ConfigError: if the library cannot read the file. The caller puts the file name before the
        message.
    """
    tokenizer = load_tokenizer(model)
    description = json_file.parse(model, "tokenizer.json")
    ids = tokenizer.get_vocab(with_added_tokens=True)
    assigned = _find_assigned(description, ids)
    by_name = _find_by_name(description, ids)
    new_roles: dict[str, str] = {}
    for role, tokens in named.items():
        token = next((token for token in tokens if token in ids), None)
        if token and role not in assigned and token != by_name.get(role):
            new_roles[role] = token
    if not new_roles:
        return model
    template = next(_templates(description.get("post_processor")), None)
    if template is None:
        template = {
            "type": "TemplateProcessing",
            "single": [_FIRST_SEQUENCE],
            "pair": [_FIRST_SEQUENCE, _SECOND_SEQUENCE],
        }
        template["special_tokens"] = {}
        processor = description.get("post_processor")
        both = {"type": "Sequence", "processors": [template, processor]}
        description["post_processor"] = both if processor else template
    for role, token in new_roles.items():
        name = _ROLE_PREFIX + role
        template["special_tokens"][name] = {"id": name, "ids": [ids[token]], "tokens": [token]}
    return json.dumps(description, ensure_ascii=False, indent=2).encode()


def describe_frame(model: bytes) -> str:
    """Describes the special tokens that a tokenizer.json puts around a sentence.

    Args:
      model: the bytes of the file, whose post-processor is described.

    Returns:
      A text such as `[CLS] ... [SEP]`, in which `...` is the sentence.
    """
    processor = json_file.parse(model, "tokenizer.json").get("post_processor")
    for part in processors(processor):
        if part["type"] in ("BertProcessing", "RobertaProcessing"):
            return f"{part['cls'][0]} ... {part['sep'][0]}"
    for template in _templates(processor):
        entries = (next(iter(part.items())) for part in template["single"])
        tokens = (
            ["..."] if kind == "Sequence" else template["special_tokens"][entry["id"]]["tokens"]
            for kind, entry in entries
        )
        return " ".join(itertools.chain.from_iterable(tokens))
    return "..."


@contextmanager
def convert_errors(problem: str) -> Iterator[None]:
    """Converts errors of the `tokenizers` library to a one-line `ConfigError`.

    The library raises `Exception` if it rejects a file. On some damaged files it panics, and Rust
    then prints to stderr. All output to stderr in the block is discarded.

    Args:
      problem: the start of the message; the error of the library follows in parentheses.

    Raises:
      ConfigError: for each exception of the block, except an interrupt or an exit.
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


def load_tokenizer(model: bytes) -> Any:
    """Loads a tokenizer that does not truncate, pad, or encode the names of special tokens.

    Raises:
      ConfigError: if the `tokenizers` library cannot read the file. The caller puts the file name
        before the message.
    """
    import tokenizers

    with convert_errors(f"cannot be read as tokenizer.json by tokenizers {tokenizers.__version__}"):
        # A str of XLM-R's file would take four bytes per character, 60 MB.
        tokenizer = tokenizers.Tokenizer.from_buffer(model)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        tokenizer.encode(_PROBE)  # raises errors that occur only when text is encoded
    return tokenizer


def _mask_encoder(
    description: Mapping[str, Any], mask: str, mask_id: int
) -> Callable[[str], list[int]]:
    """Returns a function that encodes text to native ids and recognizes the mask in the text.

    The names of all other special tokens are ordinary text: the library's option
    `encode_special_tokens` has this effect on tokens that are flagged as special. The mask is
    therefore not flagged as special here.

    Args:
      description: the content of the tokenizer.json.
      mask: the name of the mask in the file; texts contain "<mask>" instead.
      mask_id: the native id of the mask.
    """
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    added = {token["content"]: token for token in description.get("added_tokens") or ()}
    added[mask] = {"id": mask_id, "content": mask, **flags, **added.get(mask, {}), "special": False}
    tokens = sorted(added.values(), key=lambda token: token["id"])

    @functools.cache  # a file takes seconds to load, and few callers encode masks
    def load() -> Any:
        return load_tokenizer(json.dumps({**description, "added_tokens": tokens}).encode())

    def encode(text: str) -> list[int]:
        return load().encode(text.replace(MASK, mask), add_special_tokens=False).ids

    return encode


def _sort_by_id(ids: Mapping[str, int]) -> list[str]:
    ordered = sorted(ids, key=ids.__getitem__)
    for i, piece in enumerate(ordered):
        if ids[piece] != i:
            raise ConfigError(
                f"has {len(ids)} pieces, but none or two with id {min(i, ids[piece])}; ids must "
                "run from 0 without gaps, because row i of the embeddings belongs to piece i"
            )
    return ordered


def _find_specials(
    description: Mapping[str, Any], ids: Mapping[str, int]
) -> tuple[str | None, ...]:
    """Returns the token of each of `ROLES`; None for a role without a token."""
    tokens = _find_by_name(description, ids) | _find_assigned(description, ids)
    optional = {"pad", "unk"} if _covers_all_characters(description, ids) else {"pad"}
    for role, names in _NAMES.items():
        if role not in tokens and role not in optional:
            raise ConfigError(
                f"has no {' or '.join(names[:2])} among its {len(ids)} pieces; if another token is "
                f"its {role} token, set {role}_token in the tokenizer_config.json in its folder"
            )
    if tokens["bos"] == tokens["eos"]:
        raise ConfigError(
            f"uses one token, {tokens['bos']}, for both the start and the end of a text; xlj needs "
            "two different tokens"
        )
    return tuple(tokens.get(role) for role in ROLES)


def _find_by_name(description: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, str]:
    """Returns the tokens with usual names (`_NAMES`), by role.

    If a file has several of the names of a role, tokens that are flagged as special have priority,
    then added tokens. Other pieces may be ordinary text.
    """
    flags = _special_flags(description)
    candidates = {role: [name for name in names if name in ids] for role, names in _NAMES.items()}
    return {
        role: max(names, key=lambda name: (flags.get(name, False), name in flags))
        for role, names in candidates.items()
        if names
    }


def _native_special_ids(special_ids: Sequence[int | None]) -> list[int]:
    """Returns the native id for each special id of the layout.

    The value is -1 for `<pad>` or `<unk>` if the file has no such token, or if this token also has
    another role.

    Args:
      special_ids: the native id of the token of each of `ROLES`, or None.
    """
    bos, pad, eos, unk, mask = (-1 if i is None else i for i in special_ids)
    pad = -1 if pad in (bos, eos, mask) else pad
    unk = -1 if unk in (bos, pad, eos, mask) else unk
    return [bos, pad, eos, unk, mask]


def _find_assigned(description: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, str]:
    """Returns the tokens that the file itself assigns to roles.

    The tokens that the post-processor puts before and after a text are `bos` and `eos`. The token
    of the model for unknown characters is `unk`. Entries that `add_specials` wrote can assign any
    role, and have priority.
    """
    numbers: dict[str, int] = {}
    for processor in processors(description.get("post_processor")):
        if processor["type"] in ("BertProcessing", "RobertaProcessing"):
            numbers |= {"bos": processor["cls"][1], "eos": processor["sep"][1]}
    for template in _templates(description.get("post_processor")):
        before, after = _split_template(template["single"])
        entries = {name: entry["ids"][0] for name, entry in template["special_tokens"].items()}
        for role, names in (("bos", before), ("eos", after)):
            if len(names) == 1:  # of several tokens, one may be the name of a language
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


def _split_template(entries: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Returns the names of the special tokens that a template puts before and after a text."""
    kinds = [kind for part in entries for kind in part]
    names = [part["id"] for outer in entries for part in outer.values()]
    text_index = kinds.index("Sequence") if "Sequence" in kinds else len(kinds)
    return names[:text_index], names[text_index + 1 :]


def processors(processor: Any) -> Iterator[dict[str, Any]]:
    """Yields a post-processor; of a sequence of post-processors, yields each of them."""
    if processor and processor["type"] == "Sequence":
        for part in processor["processors"]:
            yield from processors(part)
    elif processor:
        yield processor


def _templates(processor: Any) -> Iterator[dict[str, Any]]:
    return (part for part in processors(processor) if part["type"] == "TemplateProcessing")


def _special_flags(description: Mapping[str, Any]) -> dict[str, bool]:
    """Returns, for each added token, whether it is flagged as special."""
    added = description.get("added_tokens") or ()
    return {token["content"]: token["special"] for token in added}


def _covers_all_characters(description: Mapping[str, Any], ids: Mapping[str, int]) -> bool:
    """Whether the model has a piece for each byte, so that no character is unknown."""
    if '"ByteLevel"' in _stages_as_json(description):
        return True
    fallback = description["model"].get("byte_fallback", False)
    return fallback and all(f"<0x{byte:02X}>" in ids for byte in range(256))


def _stages_as_json(description: Mapping[str, Any]) -> str:
    """Returns the normalizer, pre-tokenizer and decoder as JSON."""
    stages = [description.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")]
    return json.dumps(stages, ensure_ascii=False)


def _detect_markers(model: Any, description: Mapping[str, Any]) -> Markers:
    """Returns how the pieces of a model mark words (`Codec.markers`)."""
    kind = type(model).__name__
    stages = _stages_as_json(description)
    if kind == "WordPiece" and model.continuing_subword_prefix == "##":
        return "wordpiece"
    if kind in ("BPE", "Unigram") and '"ByteLevel"' in stages:
        return "byte_bpe"
    if kind in ("BPE", "Unigram") and "\u2581" in stages:
        return "sentencepiece"
    raise ConfigError(
        f"has a {kind} model with an unknown marker of words; supported are WordPiece with ##, "
        "byte-level BPE, and BPE or Unigram with U+2581"
    )
