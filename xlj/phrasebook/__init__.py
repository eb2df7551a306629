"""A synthetic corpus in eight languages: grammatical, parallel, aligned and annotated sentences.

`draw` draws a language-independent meaning. `realise` and `pair` express it with the grammars of
languages. `text_lines` and `pair_lines` return the corpus.
"""

from xlj.phrasebook.corpus import LANGUAGES, VERSION, pair, pair_lines, realise, text_lines
from xlj.phrasebook.drawing import draw
from xlj.phrasebook.meaning import Pair, Sentence, Word

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
