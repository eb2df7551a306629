"""The meaning of a vocabulary's pieces: text, whether a word starts there, forms to compare."""

import re
import unicodedata
from typing import NamedTuple

from xlj.data.text.words import SPACELESS
from xlj.data.tokenizer.layout import SPECIALS
from xlj.data.tokenizer.vocabulary import Vocabulary


class Word(NamedTuple):
    """The text of a piece without its marker, and whether a word starts there."""

    text: str
    starts_word: bool


def specials(size: int) -> list[int]:
    """The ids of `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>` among `size` ids."""
    return [*range(len(SPECIALS)), size - 1]


def words(vocabulary: Vocabulary) -> list[Word | None]:
    """The word of every id; None for specials and for pieces that are no text."""
    read = _READERS[vocabulary.markers]
    found = [read(piece) for piece in vocabulary.pieces]
    for special in specials(len(found)):
        found[special] = None
    return found


def folded(text: str) -> str:
    """The text in NFKC, case folded, without blanks at its ends."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).strip()


def unaccented(text: str) -> str:
    """`folded`, without the combining marks U+0300 to U+036F. BERT's uncased models drop all
    nonspacing marks; those of Indic scripts are vowels, though, and stay here."""
    letters = _ACCENTS.sub("", unicodedata.normalize("NFD", folded(text)))
    return unicodedata.normalize("NFC", letters)


def is_spaceless(text: str) -> bool:
    """Whether the text begins in a script that puts no spaces between words, so that no marker
    tells where a word starts: Han, kana, Thai, Lao, Tibetan, Burmese, Khmer."""
    return _SPACELESS.match(text) is not None


def _sentencepiece(piece: str) -> Word | None:
    if BYTE.fullmatch(piece):
        return None
    starts = piece.startswith("\u2581")
    return Word(piece[starts:].replace("\u2581", " "), starts)


def _byte_bpe(piece: str) -> Word | None:
    try:
        text = bytes(_BYTES[letter] for letter in piece).decode()
    except (KeyError, UnicodeDecodeError):  # an added token, or a part of a character
        return None
    starts = text.startswith(" ")
    return Word(text[starts:], starts)


def _wordpiece(piece: str) -> Word | None:
    goes_on = len(piece) > 2 and piece.startswith("##")
    text = piece[2:] if goes_on else piece
    if len(text) == 1 and _stands_alone(text):
        # BERT cuts before and after it: "," has no marker, though it follows a word as a rule, and
        # no text yields "##,", which BERT's vocabulary has too.
        return None if goes_on else Word(text, False)
    return Word(text, not goes_on)


def _stands_alone(letter: str) -> bool:
    """Punctuation as BERT sees it (all of ASCII but letters and digits), and Han."""
    punctuation = letter.isascii() or unicodedata.category(letter).startswith("P")
    return punctuation and not letter.isalnum() or _HAN.match(letter) is not None


_READERS = {"sentencepiece": _sentencepiece, "byte_bpe": _byte_bpe, "wordpiece": _wordpiece}

# GPT-2's alphabet: a byte that prints in Latin-1 is its own letter, the k-th other is U+0100 + k.
_PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_HIDDEN = tuple(sorted(set(range(256)) - set(_PRINTED)))
_BYTES = {chr(byte): byte for byte in _PRINTED} | {chr(256 + k): b for k, b in enumerate(_HIDDEN)}

BYTE = re.compile("<0x[0-9A-F]{2}>")
"""A piece that stands for a byte of a character that has no piece."""

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_ACCENTS = re.compile("[\u0300-\u036f]")
_SPACELESS = re.compile(f"[{SPACELESS}]")
