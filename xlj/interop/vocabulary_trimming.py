"""Removes the pieces of a vocabulary that a text does not need (ours).

The remaining pieces keep their order, so special tokens stay at the start or the end of the ids. A
text whose old pieces all remain, and are not `<unk>`, is split as before:

- Unigram: the old path remains the best path. An unknown character costs the lowest score of all
  pieces minus 10, so the piece with the lowest score remains.
- BPE: the merges that make a piece in a word are the merges that make the piece alone (its
  derivation), in the same order. These merges and the pieces that they join remain.
- WordPiece: the longest piece at a position remains the longest.
"""

import dataclasses
import json
import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from xlj.config import ConfigError
from xlj.data.tokenizer.layout import SPECIALS
from xlj.data.tokenizer.tokenizer_json import is_tokenizer_json, processors
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop.vocabulary_matching import BYTE
from xlj.io.json_file import Record

_SCRIPT_SHARE = 0.001

_Merge = tuple[str, str]
_Derive = Callable[[str], tuple[set[str], set[_Merge]]]


def trim(
    vocabulary: Vocabulary,
    texts: Mapping[str, Sequence[str]],
    pieces: int | None = None,
    coverage: float | None = None,
    characters: str = "all",
) -> Vocabulary:
    """Returns the vocabulary without the pieces that are rarest in the texts.

    These pieces always remain: special and added tokens, the pieces of bytes, and the one-character
    pieces that `characters` selects. The most frequent pieces of the texts follow, each with the
    pieces of its derivation (BPE). The frequency of a piece is its share of a language's pieces,
    averaged over the languages. A piece that no text contains is not added.

    Args:
      texts: lines of each language.
      pieces: the maximum number of native ids of the new vocabulary.
      coverage: the share of the texts' pieces that must remain, above 0 and at most 1. Either
        `pieces` or `coverage` is set.
      characters: one of `choices.CHARACTERS`.

    Raises:
      ConfigError: if the kind of the vocabulary is not supported, or `pieces` is too small or not
        smaller than the vocabulary.
    """
    if pieces is not None and pieces >= vocabulary.native_size:
        raise ConfigError(
            f"--pieces={pieces}: the vocabulary has {vocabulary.native_size:,} ids; expected fewer"
        )
    if characters != "all" and vocabulary.markers == "byte_bpe":
        raise ConfigError(
            f"--characters={characters} has no effect on a byte-level vocabulary, which has no "
            "pieces for characters; remove the flag"
        )
    is_json = is_tokenizer_json(vocabulary.model)
    file = _read_json(vocabulary) if is_json else _read_sentencepiece(vocabulary)
    counts = np.stack([_count(vocabulary, lines) for lines in texts.values()])
    stay = file.fixed | _choose_characters(vocabulary, counts, characters)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    kept = _choose(vocabulary, file, stay, shares.mean(0), pieces, coverage)
    new = Vocabulary(file.content(kept))
    specials = {*range(len(SPECIALS)), vocabulary.mask}
    expected = [p for i, p in enumerate(vocabulary.pieces) if i in specials or p in kept]
    if list(new.pieces) != expected:
        raise ConfigError(
            "the vocabulary cannot be trimmed, because its file would number the remaining pieces "
            "in another order"
        )
    return new


def one_character(vocabulary: Vocabulary) -> dict[str, str]:
    """Returns the pieces that are one character, each with the character.

    `##` of WordPiece is not counted. Byte-level vocabularies have no such pieces.
    """
    if vocabulary.markers == "byte_bpe":
        return {}
    letters = {piece: _letters(vocabulary, piece) for piece in _learned(vocabulary)}
    return {piece: text for piece, text in letters.items() if len(text) == 1}


def _learned(vocabulary: Vocabulary) -> tuple[str, ...]:
    return vocabulary.pieces[len(SPECIALS) : -1]


def _letters(vocabulary: Vocabulary, piece: str) -> str:
    continues = vocabulary.markers == "wordpiece" and piece.startswith("##") and len(piece) > 2
    return piece[2:] if continues else piece


def _count(vocabulary: Vocabulary, lines: Sequence[str]) -> np.ndarray:
    """Counts the pieces of lines without special tokens, int64 [ids]."""
    counts = np.bincount(vocabulary.encode(lines).ids, minlength=vocabulary.size)
    counts[: len(SPECIALS)] = 0
    return counts


def _choose_characters(vocabulary: Vocabulary, counts: np.ndarray, characters: str) -> set[str]:
    """Returns the one-character pieces that remain.

    Args:
      counts: how often each id occurs in each text, int [texts, ids].
      characters: one of `choices.CHARACTERS`.
    """
    letter_of = one_character(vocabulary)
    if characters == "all":
        return set(letter_of)
    letters: set[str] = set()
    scripts: set[str] = {""}
    for of_text in counts:
        of_letters: Counter[str] = Counter()
        for i in np.flatnonzero(of_text):
            for letter in _letters(vocabulary, vocabulary.pieces[i]):
                of_letters[letter] += int(of_text[i])
        letters |= of_letters.keys()
        of_scripts: Counter[str] = Counter()
        for letter, count in of_letters.items():
            of_scripts[_script(letter)] += count
        del of_scripts[""]
        total = of_scripts.total()
        scripts |= {s for s, count in of_scripts.items() if count >= _SCRIPT_SHARE * total}
    has_script = characters == "scripts"
    return {
        piece
        for piece, letter in letter_of.items()
        if letter in letters or (has_script and _script(letter) in scripts)
    }


def _script(letter: str) -> str:
    """Returns the script of a letter or a mark: the first word of its name in Unicode.

    The result is empty for other characters, and for marks of all scripts.
    """
    if unicodedata.category(letter)[0] not in "LM":
        return ""
    script = unicodedata.name(letter, "").partition(" ")[0]
    return "" if script in ("COMBINING", "MODIFIER", "VARIATION") else script


@dataclasses.dataclass(frozen=True)
class _File:
    """The pieces of a vocabulary's file.

    Attributes:
      fixed: the pieces that always remain.
      derive: returns the pieces of a piece's derivation, including the piece, and its merges.
      content: returns the content of the file with these pieces and the special tokens only.
    """

    fixed: set[str]
    derive: _Derive
    content: Callable[[set[str]], bytes]


def _choose(
    vocabulary: Vocabulary,
    file: _File,
    stay: set[str],
    shares: np.ndarray,
    pieces: int | None,
    coverage: float | None,
) -> set[str]:
    """Returns the pieces that remain, without special tokens.

    Args:
      stay: the pieces that remain in any case.
      shares: the frequency of each id, float [ids].
      pieces, coverage: see `trim`.
    """
    learned = _learned(vocabulary)
    share_of = dict(zip(learned, shares[len(SPECIALS) : -1].tolist(), strict=True))

    def derive(piece: str) -> set[str]:
        return file.derive(piece)[0] & share_of.keys()

    kept = set().union(*map(derive, stay))
    # Special tokens are native ids too.
    room = len(learned) if pieces is None else pieces - (vocabulary.native_size - len(learned))
    if len(kept) > room:
        letters = len(kept & one_character(vocabulary).keys())
        needed = pieces - room + len(kept) if pieces else 0
        raise ConfigError(
            f"--pieces={pieces} is too small: {needed:,} pieces must remain, of which {letters:,} "
            f"are single characters; set --pieces to {needed} or more"
            + (", or set --characters=scripts or --characters=text" if letters else "")
        )
    # Sums of shares are rounded, so a coverage of 1 is not compared with a sum.
    goal = math.inf if coverage in (None, 1) else coverage * shares.sum()
    covered = sum(share_of[piece] for piece in kept)
    for piece in sorted(share_of, key=lambda piece: -share_of[piece]):
        if not share_of[piece] or covered >= goal:
            break
        new = derive(piece) - kept
        if len(kept) + len(new) <= room:
            kept |= new
            covered += sum(share_of[each] for each in new)
    return kept


def _alone(piece: str) -> tuple[set[str], set[_Merge]]:
    return {piece}, set()


def _derive(piece: str, rank: Callable[[str, str], float | None]) -> tuple[set[str], set[_Merge]]:
    """Returns the pieces and merges by which BPE makes a piece from its characters.

    If BPE does not make the piece, the result has no merges. Such a piece is an added token, or a
    word that the tokenizer takes as a whole (`ignore_merges`).

    Args:
      rank: the rank of the merge of two pieces, lowest first; None without such a merge.
    """
    parts, made, merges = list(piece), set(piece), set()
    while len(parts) > 1:
        ranks = ((rank(a, b), i) for i, (a, b) in enumerate(zip(parts, parts[1:], strict=False)))
        possible = [(value, i) for value, i in ranks if value is not None]
        if not possible:
            return _alone(piece)
        i = min(possible)[1]
        merges.add((parts[i], parts[i + 1]))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        made.add(parts[i])
    return made, merges


def _read_sentencepiece(vocabulary: Vocabulary) -> _File:
    proto: Any = ModelProto.FromString(vocabulary.model)
    trainer = proto.trainer_spec
    normal = {piece.piece: piece.score for piece in proto.pieces if piece.type == piece.NORMAL}
    fixed = set(_learned(vocabulary)) - normal.keys() | _extremes(normal)
    derive: _Derive = _alone
    if trainer.model_type == trainer.BPE:

        def rank(first: str, second: str) -> float | None:
            score = normal.get(first + second)
            return None if score is None else -score

        derive = cache(lambda piece: _derive(piece, rank))
    elif trainer.model_type != trainer.UNIGRAM:
        kind = trainer.ModelType.Name(trainer.model_type).lower()
        raise ConfigError(
            f"the SentencePiece model is of the type {kind}, which xlj cannot trim; expected "
            "unigram or bpe"
        )

    def content(kept: set[str]) -> bytes:
        new: Any = ModelProto.FromString(vocabulary.model)
        del new.pieces[:]
        new.pieces.extend(p for p in proto.pieces if p.type != p.NORMAL or p.piece in kept)
        new.trainer_spec.vocab_size = len(new.pieces)
        new.ClearField("self_test_data")  # its texts have the old pieces
        return new.SerializeToString(deterministic=True)

    return _File(fixed, derive, content)


def _extremes(scores: Mapping[str, float]) -> set[str]:
    """Returns the pieces with the lowest and the highest score, from which unigram models compute
    the scores of unknown characters and of user-defined pieces."""
    return {min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__)}


def _read_json(vocabulary: Vocabulary) -> _File:
    description = json.loads(vocabulary.model)
    model, names, learned = description["model"], _names(vocabulary), set(_learned(vocabulary))
    added = description.get("added_tokens") or ()
    used_ids: list[int] = []

    def note(i: int) -> int:
        used_ids.append(i)
        return i

    _renumber(description, note)
    fixed = {token["content"] for token in added} | {names[i] for i in used_ids}
    fixed |= {piece for piece in learned if BYTE.fullmatch(piece)}
    derive: _Derive = _alone
    merges: list[tuple[str, ...]] = []
    if vocabulary.markers == "byte_bpe":
        fixed |= {piece for piece in learned if len(piece) == 1}
    if model["type"] == "Unigram":
        fixed |= _extremes(dict(model["vocab"]))
    elif model["type"] == "BPE":
        # Older releases of the tokenizers library write a merge as "a b", newer ones as ["a", "b"].
        merges = [tuple(m.split(" ") if isinstance(m, str) else m) for m in model["merges"]]
        _check_merges(model, merges)
        ranks = {merge: rank for rank, merge in enumerate(merges)}
        derive = cache(lambda piece: _derive(piece, lambda a, b: ranks.get((a, b))))

    def content(kept: set[str]) -> bytes:
        remaining = [name for name in names if name in kept or name not in learned]
        ids = {name: i for i, name in enumerate(remaining)}
        if model["type"] == "Unigram":
            vocab: Any = [entry for entry in model["vocab"] if entry[0] in ids]
        else:
            vocab = {name: i for name, i in ids.items() if name in model["vocab"]}
        new = description | {"model": model | {"vocab": vocab}}
        if model["type"] == "BPE":
            used = set().union(*(derive(piece)[1] for piece in kept))
            pairs = zip(model["merges"], merges, strict=True)
            new["model"]["merges"] = [entry for entry, merge in pairs if merge in used]
        new["added_tokens"] = [token | {"id": ids[token["content"]]} for token in added]
        new = json.loads(json.dumps(new))
        _renumber(new, lambda i: ids[names[i]])
        return json.dumps(new, ensure_ascii=False, indent=2).encode()

    return _File(fixed & learned, derive, content)


def _names(vocabulary: Vocabulary) -> list[str]:
    """Returns the name of each native id in a tokenizer.json."""
    names = dict(zip(vocabulary.native_ids.tolist(), vocabulary.pieces, strict=True))
    specials = zip(vocabulary.native_special_ids, vocabulary.native_specials, strict=True)
    names |= {i: token for i, token in specials if i is not None and token is not None}
    return [names[i] for i in range(vocabulary.native_size)]


def _check_merges(model: Record, merges: Sequence[tuple[str, ...]]) -> None:
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise ConfigError(
                f"the tokenizer.json has a BPE model with {key}={model[key]!r}, which xlj cannot "
                "trim; expected BPE without markers of continued words"
            )
    if any(BYTE.fullmatch(part) for merge in merges for part in merge):
        raise ConfigError(
            "the tokenizer.json has a BPE model with merges of byte pieces, which xlj cannot trim"
        )


def _renumber(description: Record, new_id: Callable[[int], int]) -> None:
    """Replaces the ids of a tokenizer.json outside its pieces and added tokens, in place.

    Args:
      new_id: returns the new id of an id.
    """
    model, padding = description["model"], description.get("padding")
    if model.get("unk_id") is not None:
        model["unk_id"] = new_id(model["unk_id"])
    if padding:
        padding["pad_id"] = new_id(padding["pad_id"])
    for part in processors(description.get("post_processor")):
        for key in ("cls", "sep"):
            if key in part:
                part[key][1] = new_id(part[key][1])
        for entry in part.get("special_tokens", {}).values():
            entry["ids"] = [new_id(i) for i in entry["ids"]]
