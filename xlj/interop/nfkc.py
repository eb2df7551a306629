"""SentencePiece's normalisation as normalisers of the `tokenizers` library.

SentencePiece scans text from left to right, and replaces the longest string for which it has a
rule. The rules of `nmt_nfkc` replace single characters that NFKC changes, and complete
decompositions of characters. So the three characters o, circumflex, tilde become one character. But
the two characters U+00F4 (o with circumflex), tilde remain two, which NFKC would compose.

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
            parts = unicodedata.normalize(form, character)
            for first, second in itertools.pairwise(parts):
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
