"""Reads the text of pieces and whether they start a word; defines normal forms to compare texts."""

import re
import unicodedata
from typing import NamedTuple

from xlj.data.text.words import SPACELESS
from xlj.data.tokenizer.layout import SPECIALS
from xlj.data.tokenizer.vocabulary import Vocabulary


class Word(NamedTuple):
    """The text of a piece without its marker, and whether the piece starts a word."""

    text: str
    starts_word: bool


def specials(size: int) -> list[int]:
    """Returns the ids of `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>` among `size` ids."""
    return [*range(len(SPECIALS)), size - 1]


def words(vocabulary: Vocabulary) -> list[Word | None]:
    """Returns the `Word` of every id; None for special tokens and for pieces that are not text."""
    read = _READERS[vocabulary.markers]
    by_id = [read(piece) for piece in vocabulary.pieces]
    for special in specials(len(by_id)):
        by_id[special] = None
    return by_id


def folded(text: str) -> str:
    """Returns the text in NFKC, case folded, without whitespace at its ends."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).strip()


def unaccented(text: str) -> str:
    """Returns the `folded` text without the combining marks U+0300 to U+036F.

    BERT's uncased models remove all nonspacing marks. In Indic scripts such marks are vowels, so
    this function does not remove them.
    """
    letters = _ACCENTS.sub("", unicodedata.normalize("NFD", folded(text)))
    return unicodedata.normalize("NFC", letters)


def is_spaceless(text: str) -> bool:
    """Returns whether the text begins in a script without spaces between words.

    The scripts are Han, kana, Thai, Lao, Tibetan, Burmese and Khmer. In these scripts, markers of
    pieces do not show where words start.
    """
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
    continues = len(piece) > 2 and piece.startswith("##")
    text = piece[2:] if continues else piece
    if len(text) == 1 and _is_separate(text):
        # BERT splits text before and after these characters. So "," has no marker, although it
        # usually follows a word. BERT's vocabulary contains "##,", but no text yields this piece.
        return None if continues else Word(text, False)
    return Word(text, not continues)


def _is_separate(letter: str) -> bool:
    """Returns whether BERT makes a character a separate word: punctuation, ASCII symbols, Han."""
    punctuation = letter.isascii() or unicodedata.category(letter).startswith("P")
    return punctuation and not letter.isalnum() or _HAN.match(letter) is not None


_READERS = {"sentencepiece": _sentencepiece, "byte_bpe": _byte_bpe, "wordpiece": _wordpiece}

# GPT-2's alphabet: a printable byte of Latin-1 is its own letter; the k-th other byte is U+0100 +
# k.
_PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_HIDDEN = tuple(sorted(set(range(256)) - set(_PRINTED)))
_BYTES = {chr(byte): byte for byte in _PRINTED} | {chr(256 + k): b for k, b in enumerate(_HIDDEN)}

BYTE = re.compile("<0x[0-9A-F]{2}>")
"""The format of byte pieces, into which characters without a piece are split."""

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_ACCENTS = re.compile("[\u0300-\u036f]")
_SPACELESS = re.compile(f"[{SPACELESS}]")
