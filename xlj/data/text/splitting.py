"""Splits paragraphs into sentences by rules of the script, and joins sentences.

The rules need no dictionary and no model of a language, so they cannot tell every abbreviation from
the end of a sentence. docs/align_documents.md lists what they cannot do.
"""

import re
import unicodedata
from collections.abc import Sequence

_WIDE_STOPS = "。！？｡．"  # stops of scripts without spaces; no space follows
_STOPS = ".!?…؟۔।॥։።፧፨᙮᠃᠉။៕៖"
_CLOSING = "\"'”’»›)]}）」』】》〉”’"
_ABBREVIATIONS = frozenset(
    "abb adj adm approx apr aug ave bd blvd bros bsp bzgl bzw ca cap capt cf ch chap co col "
    "corp dec dept dr dra ed eds etc excl feb fed fig figs fr gen gov hon hr hrsg inc incl ing "
    "jan jr jul jun lt ltd maj mio mlle mme mmes mr mrd mrs ms mt mz nos nov nr núm oct op pag "
    "pp prof pt pág rd rep resp rev sec sen sep sept sgt sr sra srta st ste str stv tel th tm "
    "tr usw vgl vol vols vs zb".split()
)
"""Words that end in a full stop inside a sentence, in lowercase, from several languages."""
_END = re.compile(
    rf"(?<=[{_WIDE_STOPS}])(?![{_WIDE_STOPS}{re.escape(_CLOSING)}])"
    rf"|(?<=[{_WIDE_STOPS}][{re.escape(_CLOSING)}])(?![{_WIDE_STOPS}{re.escape(_CLOSING)}])"
    rf"|(?<=[{_STOPS}])\s+"
    rf"|(?<=[{_STOPS}][{re.escape(_CLOSING)}])\s+"
)
_LAST_WORD = re.compile(r"(?:^|[\s(\[\"'«“‘-])([^\W\d_]+(?:\.[^\W\d_]+)*)\.$")
_NO_SPACE = ("CJK", "HIRAGANA", "KATAKANA", "IDEOGRAPHIC", "FULLWIDTH")
_QUOTES = "\"'“”‘’"


def split(text: str) -> list[str]:
    """Splits a paragraph into sentences. No sentence is empty; spaces at their ends are removed.

    A stop of Chinese and Japanese ends a sentence. Any other stop ends a sentence only if a space
    follows, and, for a full stop, unless

    - the word before it is one letter, contains full stops, or is a known abbreviation, or
    - a number of one or two digits is before it, and a digit follows.

    If a lowercase letter follows, no stop ends a sentence.
    """
    sentences, start = [], 0
    for match in _END.finditer(text):
        before = text[start : match.start()]
        if before.strip() and _is_end(before, text[match.end() :][:8]):
            sentences.append(before.strip())
            start = match.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _is_end(before: str, after: str) -> bool:
    """Whether a sentence ends between two texts at a stop."""
    before = before.rstrip()
    stripped = before.rstrip(_CLOSING)
    following = after.lstrip(f"{_CLOSING}“‘«‹([{{„¿¡—–- ")[:1]
    if following.islower():
        return False
    if stripped[-1:] != "." or stripped.endswith(".."):
        return True
    if stripped[-2:-1].isdigit():
        return not (following.isdigit() and len(re.findall(r"\w+", stripped)[-1]) < 3)
    word = _LAST_WORD.search(stripped)
    if not word or stripped != before:
        return True
    name = word[1].lower()
    return not (len(name) == 1 or "." in name or name in _ABBREVIATIONS)


def join(sentences: Sequence[str]) -> str:
    """Joins sentences to one text: with a space, except between letters of scripts without
    spaces."""
    text = ""
    for sentence in sentences:
        space = " " if text and sentence and not _is_tight(text[-1], sentence[0]) else ""
        text += space + sentence
    return text


def _is_tight(last: str, first: str) -> bool:
    """Whether no space belongs between two letters: one of Chinese or Japanese, and another or a
    quotation mark."""
    letters = [_has_no_spaces(letter) for letter in (last, first)]
    return any(letters) and all(
        is_letter or letter in _QUOTES
        for letter, is_letter in zip((last, first), letters, strict=True)
    )


def _has_no_spaces(letter: str) -> bool:
    """Whether a letter or stop belongs to Chinese or Japanese."""
    return unicodedata.name(letter, "").startswith(_NO_SPACE)
