"""SentencePiece's normalisation as normalisers of the `tokenizers` library.

SentencePiece replaces, from left to right, the longest string that its rules know. The rules of
`nmt_nfkc` are the single characters that NFKC changes, and whole decompositions of characters: `o`,
circumflex, tilde become one letter, but the letter with circumflex and a tilde stay two.
`tokenizers.normalizers.Precompiled` holds the same rules but applies the *shortest* that fits, and
drops the rest of a grapheme of less than 6 bytes: decomposed Vietnamese loses its tones, decomposed
Hangul stays so (huggingface/tokenizers issues 2116 and 2334). So NFKC goes first, which leaves it
single characters only, and guards keep NFKC from composing and reordering more than a rule would
(ours). docs/tokenizers.md tells what still differs.
"""

import itertools
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from xlj.config import ConfigError

if TYPE_CHECKING:
    from tokenizers.normalizers import Normalizer

_GUARD, _TILDE = "\U0010fffe", "\U0010ffff"  # noncharacters, which no text has
_FULLWIDTH_TILDE = "\uff5e"  # the only character that NFKC changes and nmt_nfkc does not


def normalizer(charsmap: bytes) -> "Normalizer":
    """A `tokenizers` normaliser that does what SentencePiece does with the rules of a model.

    Args:
      charsmap: the model's `precompiled_charsmap`: `nmt_nfkc`, `nfkc`, or either with case folding.

    Raises:
      ConfigError: if they are other rules.
    """
    from tokenizers import Regex, normalizers

    rules = normalizers.Precompiled(charsmap)
    steps = [
        normalizers.Replace(Regex(_guarded()), _GUARD),
        normalizers.NFKC(),
        rules,
        normalizers.Replace(_GUARD, ""),
    ]
    if rules.normalize_str(_FULLWIDTH_TILDE) == _FULLWIDTH_TILDE:
        steps.insert(0, normalizers.Replace(_FULLWIDTH_TILDE, _TILDE))
        steps.append(normalizers.Replace(_TILDE, _FULLWIDTH_TILDE))
    whole = normalizers.Sequence(steps)
    for character in _decomposing():
        found, wanted = whole.normalize_str(character), rules.normalize_str(character)
        if found != wanted:
            raise ConfigError(
                "this SentencePiece model does not normalise by NFKC: "
                f"U+{ord(character):04X} becomes {wanted!r}, not {found!r}"
            )
    return whole


def _decomposing() -> Iterator[str]:
    """All characters that a decomposition is listed for, which Hangul's are not."""
    return (chr(c) for c in range(0x80, 0x110000) if unicodedata.decomposition(chr(c)))


def _guarded() -> str:
    """A regular expression of the empty places that NFKC must not reach over: between a character
    that decomposes and a mark, and between two marks that follow each other in no decomposition."""
    composed: list[str] = []
    followers: dict[str, set[str]] = defaultdict(set)
    for character in _decomposing():
        if len(unicodedata.normalize("NFKD", character)) > 1:
            composed.append(character)
        for form in ("NFD", "NFKD"):
            parts = unicodedata.normalize(form, character)
            for first, second in itertools.pairwise(parts):
                if _is_mark(first) and _is_mark(second):
                    followers[first].add(second)
    firsts: dict[frozenset[str], list[str]] = defaultdict(list)
    for first, seconds in followers.items():
        firsts[frozenset(seconds)].append(first)
    allowed = "|".join(f"(?<={_any(first)}){_any(seconds)}" for seconds, first in firsts.items())
    return rf"(?<={_any(composed)})(?=\p{{M}})|(?<=\p{{M}})(?=\p{{M}})(?!{allowed})"


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def _any(characters: Iterable[str]) -> str:
    """A regular expression of any of these characters, none of which is ASCII."""
    ranges: list[list[int]] = []
    for code in sorted(map(ord, characters)):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(rf"\x{{{low:X}}}-\x{{{high:X}}}" for low, high in ranges) + "]"
