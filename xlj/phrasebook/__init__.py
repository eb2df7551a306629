"""A phrasebook of eight languages: grammatical sentences, parallel, aligned and annotated.

A language-independent meaning is drawn first (`draw`), then each grammar puts it into words
(`realise`, `pair`); `text_lines` and `pair_lines` are the corpus made from them.
"""

from xlj.phrasebook.corpus import VERSION, pair_lines, text_lines
from xlj.phrasebook.drawing import draw
from xlj.phrasebook.realising import LANGUAGES, pair, realise
from xlj.phrasebook.sentence import Pair, Sentence, Word

__all__ = [
    "LANGUAGES",
    "VERSION",
    "Pair",
    "Sentence",
    "Word",
    "draw",
    "pair",
    "pair_lines",
    "realise",
    "text_lines",
]
