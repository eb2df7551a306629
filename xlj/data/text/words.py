"""A pattern for the words of running text, also in scripts without spaces between words."""

import re

SPACELESS = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan; Burmese; Khmer
    "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # kana, Han
)
"""Characters of scripts without spaces between words, in the syntax inside `[...]` of a regular
expression."""

WORD = re.compile(rf"[{SPACELESS}]{{1,2}}|[^\s{SPACELESS}]+")
"""Matches a word: the characters between spaces or, in scripts without spaces, one or two
characters. The rule for scripts without spaces is ours: their words have about two characters, and
the rule needs no dictionary."""
