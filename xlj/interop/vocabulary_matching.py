"""MetaXLM's vocabulary matching (Chi et al., 2021, section 3.2): finds an old piece for each new
piece.

The old piece has the same text, or the text of a translation. The embedding of the new piece is
initialised from the embedding of the old piece.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from xlj.config.sections import MATCHING_RULES
from xlj.data.ragged import Ragged
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop.dictionaries import Dictionary
from xlj.interop.matched_rows import RULES, Matches
from xlj.interop.piece_text import Word, folded, is_spaceless, specials, unaccented, words

_Form = Callable[[str], str]
_Index = dict[_Form, dict[Word, int]]  # for each form: old ids, by the text in this form


def match(
    old: Vocabulary,
    new: Vocabulary,
    dictionaries: Sequence[Dictionary] = (),
    rules: Sequence[str] = MATCHING_RULES,
) -> Matches:
    """Finds the old id from which each id of a new vocabulary is initialised.

    The paper looks up the word, then the normalised word. With dictionaries (+Dict) it translates
    first. The definition of normalised text, the treatment of markers and the order of rules are
    ours. The first rule that finds an old id is used, in the order of `rules`; special tokens come
    first:

    1. `special`: the special token with the same role (`<s>`, `<pad>`, `</s>`, `<unk>`, `<mask>`).
    2. `exact`: a piece with the same text; both pieces start a word, or neither does.
    3. `normalised`: as `exact`, but the texts are compared in NFKC and case folded.
    4. `dictionary`: a translation of the new piece, if this piece is a whole word. A whole word is
       a piece that starts a word, or any piece in a script without spaces. The translation must be
       a single old piece that starts a word, compared as in rules 2 and 3. Other translations are
       skipped. Dictionaries and their translations are tried in order.
    5. `accents`: as `normalised`, but without accents.
    6. `place`: as `exact`, `normalised` or `accents`, but only one of the two pieces starts a word.

    Rules 5 and 6 are guesses, so by default the dictionaries come before them: "für" should match
    "for" rather than "fur". If several old pieces have the same normal form, the piece that is
    equal to this form is used, or else the piece with the lowest id.

    Args:
      rules: names of the rules 2 to 6. The paper has `dictionary` first ("first searching the word
        translation in the dictionaries, and then applying the mapping strategy"). Without
        `accents`, rule 6 does not ignore accents.
    """
    index = _index(words(old))
    forms = (str, folded, unaccented) if "accents" in rules else (str, folded)
    look_ups: dict[str, Callable[[Word], Iterator[int]]] = {
        "exact": lambda word: _look_up(index, word, str),
        "normalised": lambda word: _look_up(index, word, folded),
        "dictionary": partial(_translated, index, dictionaries),
        "accents": lambda word: _look_up(index, word, unaccented),
        "place": partial(_elsewhere, index, forms),
    }

    size = len(new.pieces)
    old_ids = np.full(size, -1, np.int32)
    found_by = np.full(size, RULES.index("none"), np.int8)
    for new_id, word in enumerate(words(new)):
        if word is not None:
            hits = ((old_id, rule) for rule in rules for old_id in look_ups[rule](word))
            old_ids[new_id], rule = next(hits, (-1, "none"))
            found_by[new_id] = RULES.index(rule)
    old_ids[specials(size)] = specials(len(old.pieces))
    found_by[specials(size)] = RULES.index("special")
    return Matches(Ragged(old_ids[old_ids >= 0], (old_ids >= 0).astype(np.int64)), found_by)


def _translated(index: _Index, dictionaries: Sequence[Dictionary], word: Word) -> Iterator[int]:
    """Yields the old ids of the translations of a whole word."""
    if word.starts_word or is_spaceless(word.text):
        key = folded(word.text)
        for dictionary in dictionaries:
            for translation in dictionary.get(key, ()):
                yield from _look_up(index, Word(translation, True), str, folded)


def _elsewhere(index: _Index, forms: Sequence[_Form], word: Word) -> Iterator[int]:
    """Yields the old ids of pieces with the same text that start a word if `word` does not, or the
    reverse."""
    return _look_up(index, Word(word.text, not word.starts_word), *forms)


def _look_up(index: _Index, word: Word, *forms: _Form) -> Iterator[int]:
    for form in forms:
        text = form(word.text)
        old_id = index[form].get(Word(text, word.starts_word))
        if old_id is not None and (text or form is str):  # a single mark has an empty normal form
            yield old_id


def _index(old: Sequence[Word | None]) -> _Index:
    index: _Index = {str: {}, folded: {}, unaccented: {}}
    known = [(old_id, word) for old_id, word in enumerate(old) if word is not None]
    for form, ids in index.items():
        keyed = [(Word(form(word.text), word.starts_word), word, old_id) for old_id, word in known]
        keyed.sort(key=lambda item: item[0] != item[1])  # normal forms come first
        for key, _, old_id in keyed:
            ids.setdefault(key, old_id)
    return index
