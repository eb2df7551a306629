"""Converts a SentencePiece model to a Hugging Face tokenizer.json that gives the same ids.

SentencePiece's normalisation becomes normalisers of the `tokenizers` library. SentencePiece scans
text from left to right, and replaces the longest string for which it has a rule. The rules of
`nmt_nfkc` replace single characters that NFKC changes, and complete decompositions of characters.
So the three characters o, circumflex, tilde become one character. But the two characters U+00F4 (o
with circumflex), tilde remain two, which NFKC would compose.

`tokenizers.normalizers.Precompiled` has the same rules, but applies the *shortest* rule that
matches, and drops the rest of a grapheme of less than 6 bytes. So decomposed Vietnamese loses its
tones, and decomposed Hangul is not composed (huggingface/tokenizers issues 2116 and 2334). To avoid
this, `normalizer` applies NFKC before `Precompiled`, which then receives composed characters only.
Guard characters prevent NFKC from composing or reordering more than SentencePiece's rules do
(ours). docs/tokenizers.md lists the remaining differences.
"""

import itertools
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from xlj.config import ConfigError

if TYPE_CHECKING:
    from tokenizers.normalizers import Normalizer

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xlj.data.tokenizer.tokenizer_json import convert_errors
from xlj.io.quoting import quoted

if TYPE_CHECKING:
    from tokenizers.models import BPE, Unigram


_SPACE = "\u2581"
_NORMAL = 1  # sentencepiece_model.proto: SentencePiece.Type
_UNIGRAM, _BPE = 1, 2  # its TrainerSpec.ModelType


def from_sentencepiece(
    model: bytes, pieces: Sequence[str], specials: tuple[str, str, str, str, str]
) -> bytes:
    """Returns the tokenizer.json of a SentencePiece model.

    Special tokens are added as in XLM-R: `<s> A </s>` and `<s> A </s></s> B </s>`. Text that spells
    a special token becomes this token, as in Hugging Face's tokenizers without
    `split_special_tokens`.

    Args:
      model: the content of the SentencePiece file.
      pieces: the pieces, in the order of ids.
      specials: the names of `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>` among the pieces.

    Raises:
      ConfigError: if the pieces differ from the model's pieces, or `tokenizers` cannot represent
        the model. `tokenizers` supports unigram and BPE models with SentencePiece's default options
        and built-in normalisations.
    """
    import tokenizers
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import decoders, pre_tokenizers, processors

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)  # type: ignore[attr-defined]
    _check(proto)
    scores = {piece.piece: piece.score for piece in proto.pieces if piece.type == _NORMAL}
    unequal = scores.keys() ^ (set(pieces) - set(specials))
    if unequal or len(scores) + len(specials) != len(pieces):
        raise ConfigError(
            f"the SentencePiece model and the list of pieces differ in {len(unequal)} pieces, such "
            f"as {quoted(min(unequal, default=None))}; expected files of the same tokenizer"
        )
    first, pad, last, unknown, mask = specials
    is_bpe = proto.trainer_spec.model_type == _BPE
    tokenizer = tokenizers.Tokenizer(
        _bpe(pieces, scores, unknown) if is_bpe else _unigram(pieces, scores, unknown)
    )
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        with convert_errors("the normalisation of this SentencePiece model cannot be read"):
            tokenizer.normalizer = normalizer(charsmap)
    # XLM-R's tokenizer.json splits by WhitespaceSplit instead of " ". WhitespaceSplit drops U+0085,
    # which SentencePiece does not treat as a space.
    words = [
        pre_tokenizers.Split(" ", "removed"),
        pre_tokenizers.Metaspace(_SPACE, prepend_scheme="always"),
    ]
    if not is_bpe:  # special tokens are pieces of a unigram model, which must not find them in text
        words.append(
            pre_tokenizers.Split(tokenizers.Regex(_before_last_characters(specials)), "isolated")
        )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(words)
    tokenizer.decoder = decoders.Metaspace(_SPACE, prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[first, "$A", last],
        pair=[first, "$A", last, last, "$B", last],
        special_tokens=[(name, list(pieces).index(name)) for name in (first, last)],
    )
    # As in XLM-R, <mask> includes the space before it, because pieces begin with a space.
    for name in specials:
        token = tokenizers.AddedToken(name, lstrip=name == mask, normalized=False, special=True)
        tokenizer.add_special_tokens([token])
    return tokenizer.to_str().encode()


def _unigram(pieces: Sequence[str], scores: Mapping[str, float], unknown: str) -> "Unigram":
    from tokenizers import models

    # `tokenizers` gives an unknown character the lowest score minus 10. Special tokens must not
    # lower this score.
    lowest = min(scores.values())
    return models.Unigram(
        [(piece, scores.get(piece, lowest)) for piece in pieces],
        unk_id=list(pieces).index(unknown),
        byte_fallback=False,
    )


def _bpe(pieces: Sequence[str], scores: Mapping[str, float], unknown: str) -> "BPE":
    """Returns a BPE model with a merge for each way to split a piece into two pieces.

    SentencePiece joins the two adjacent pieces whose result has the highest score, regardless of
    how the result is split. So merges are ordered by the score of their result, highest first.
    """
    from tokenizers import models

    merges = [
        (piece[:cut], piece[cut:])
        for piece in sorted(scores, key=lambda piece: -scores[piece])
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    ids = {piece: index for index, piece in enumerate(pieces)}
    return models.BPE(ids, merges, unk_token=unknown, fuse_unk=True)


def _before_last_characters(specials: Sequence[str]) -> str:
    """Returns a regular expression that matches the position before each special's last character.

    The matches are empty strings.
    """
    patterns = (f"(?<={re.escape(name[:-1])})(?={re.escape(name[-1])})" for name in specials)
    return "|".join(patterns)


def _check(proto: Any) -> None:
    """Raises a ConfigError if a tokenizer.json cannot represent the model."""
    spec, trainer = proto.normalizer_spec, proto.trainer_spec
    kinds = {piece.type for piece in proto.pieces[3:]}
    across_words = [piece.piece for piece in proto.pieces if _SPACE in piece.piece[1:]]
    is_bpe, normal = trainer.model_type == _BPE, [p for p in proto.pieces if p.type == _NORMAL]
    joined = [piece.score for piece in normal if len(piece.piece) > 1]
    letters = {letter for piece in normal for letter in piece.piece}
    missing = sorted(letters - {piece.piece for piece in normal})
    reasons = {
        "it is neither a unigram nor a BPE model": trainer.model_type not in (_UNIGRAM, _BPE),
        "its normalisation has user-defined rules": spec.name == "user_defined",
        "it does not add a space at the start, does not remove repeated spaces, or does not write "
        "spaces as U+2581": not (
            spec.add_dummy_prefix and spec.remove_extra_whitespaces and spec.escape_whitespaces
        ),
        "it marks the ends of words instead of the starts": trainer.treat_whitespace_as_suffix,
        "it has user-defined, unused or byte pieces": kinds - {_NORMAL},
        f"it has pieces that contain a space, such as {across_words[:1]}": across_words,
        "it is BPE with pieces of equal score": is_bpe and len(set(joined)) < len(joined),
        f"it is BPE, and the character {missing[:1]} of its pieces is not a piece": is_bpe
        and missing,
    }
    for reason, applies in reasons.items():
        if applies:
            raise ConfigError(
                "xlj cannot convert this SentencePiece model to an equivalent tokenizer.json: "
                f"{reason}"
            )


# Noncharacters, which do not occur in text: the guard, and substitutes for characters that NFKC
# changes and the rules do not. These are U+FF5E (fullwidth tilde) in nmt_nfkc, and in XLM-R also
# U+1F23B, which Unicode did not have when the rules were made.
_GUARD = "\U0010fffe"
_SUBSTITUTES = [chr(plane << 16 | 0xFFFF) for plane in range(16, 0, -1)]


def normalizer(charsmap: bytes) -> "Normalizer":
    """Returns a `tokenizers` normaliser that applies a model's rules as SentencePiece does.

    Args:
      charsmap: the model's `precompiled_charsmap`: `nmt_nfkc`, `nfkc`, or either with case folding,
        of this or an older release of Unicode.

    Raises:
      ConfigError: if the model has other rules.
    """
    from tokenizers import Regex, normalizers

    rules, by_unicode = normalizers.Precompiled(charsmap), normalizers.NFKC()
    unchanged = [c for c in _decomposing() if rules.normalize_str(c) == c]
    kept = [c for c in unchanged if by_unicode.normalize_str(c) != c]
    substitutes = list(zip(kept, _SUBSTITUTES, strict=False))
    normalizer_steps = normalizers.Sequence(
        [
            *(normalizers.Replace(character, other) for character, other in substitutes),
            normalizers.Replace(Regex(_guard_positions()), _GUARD),
            by_unicode,
            rules,
            normalizers.Replace(_GUARD, ""),
            *(normalizers.Replace(other, character) for character, other in substitutes),
        ]
    )
    for character in _decomposing():
        by_nfkc, by_rules = (
            normalizer_steps.normalize_str(character),
            rules.normalize_str(character),
        )
        if by_nfkc != by_rules:
            raise ConfigError(
                "this SentencePiece model does not normalise by NFKC: it replaces "
                f"U+{ord(character):04X} by {by_rules!r}, expected {by_nfkc!r}"
            )
    return normalizer_steps


def _decomposing() -> Iterator[str]:
    """Yields all characters with a decomposition in Unicode's tables (which omit Hangul)."""
    return (chr(c) for c in range(0x80, 0x110000) if unicodedata.decomposition(chr(c)))


def _guard_positions() -> str:
    """Returns a regular expression that matches the positions of guard characters.

    At these positions NFKC must not compose or reorder. They are between a character that
    decomposes and a mark, and between two marks that are not adjacent in any decomposition. The
    matches are empty strings.
    """
    composed: list[str] = []
    followers: dict[str, set[str]] = defaultdict(set)
    for character in _decomposing():
        if len(unicodedata.normalize("NFKD", character)) > 1:
            composed.append(character)
        for form in ("NFD", "NFKD"):
            characters = unicodedata.normalize(form, character)
            for first, second in itertools.pairwise(characters):
                if _is_mark(first) and _is_mark(second):
                    followers[first].add(second)
    firsts: dict[frozenset[str], list[str]] = defaultdict(list)
    for first, seconds in followers.items():
        firsts[frozenset(seconds)].append(first)
    allowed = "|".join(
        f"(?<={_match_any(first)}){_match_any(seconds)}" for seconds, first in firsts.items()
    )
    return rf"(?<={_match_any(composed)})(?=\p{{M}})|(?<=\p{{M}})(?=\p{{M}})(?!{allowed})"


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def _match_any(characters: Iterable[str]) -> str:
    """Returns a regular expression that matches any of these characters, none of which is ASCII."""
    ranges: list[list[int]] = []
    for code in sorted(map(ord, characters)):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(rf"\x{{{low:X}}}-\x{{{high:X}}}" for low, high in ranges) + "]"
