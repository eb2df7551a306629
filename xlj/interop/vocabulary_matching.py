"""MetaXLM's vocabulary matching (Chi et al., 2021, section 3.2): a new piece's row starts from that
of the same word in the old vocabulary, or of its translation."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from xlj.data.rows.packing import Ragged
from xlj.interop.dictionaries import Dictionary
from xlj.interop.matches import RULES, Matches
from xlj.interop.words import (
    Pieces,
    Word,
    folded,
    is_spaceless,
    specials,
    unaccented,
    words,
)

_FORMS: tuple[Callable[[str], str], ...] = (str, folded, unaccented)
_SAME, _FOLDED, _UNACCENTED = range(3)

_Index = tuple[dict[Word, int], ...]  # of each form: old id by the form of its text


def match(
    old: Pieces,
    new: Pieces,
    dictionaries: Sequence[Dictionary] = (),
    *,
    dictionaries_first: bool = False,
    accents: bool = True,
    place: bool = True,
) -> Matches:
    """The old id that each id of a new vocabulary starts from, by the first rule that finds one.

    The paper looks up the word, then the normalised word, and with dictionaries (+Dict) first
    translates. What normalising is, how markers compare and in what order is ours:

    1. `special`: the same role (`<s>`, `<pad>`, `</s>`, `<unk>`, `<mask>`).
    2. `exact`: the same text, at the start of a word in both or in neither.
    3. `normalised`: the same in NFKC and case folded.
    4. `dictionary`: a whole word whose translation is one old piece that starts a word, exactly or
       normalised. The first such translation of the first such dictionary; a translation of
       several pieces is skipped. A whole word is a piece that starts one, or any piece of a script
       without spaces.
    5. `accents`: normalised, without accents.
    6. `place`: exact, normalised or without accents, where only one of the two starts a word.

    The last two are guesses, and come after the dictionaries: "für" is "for" before it is "fur".
    Of several old pieces with one normal form, that which is its own normal form is taken,
    else the lowest id.

    Args:
      dictionaries_first: look into the dictionaries before 2, as the paper does ("first searching
        the word translation in the dictionaries, and then applying the mapping strategy").
      accents, place: whether there is that guess; without `accents`, 6 has accents too.
    """
    index = _index(words(old))
    look_ups = _look_ups(index, dictionaries, dictionaries_first, accents, place)
    size = len(new.pieces)
    found = np.full(size, -1, np.int32)
    rules = np.full(size, RULES.index("none"), np.int8)
    for new_id, word in enumerate(words(new)):
        if word is not None:
            for rule, look_up in look_ups:
                old_id = next(look_up(word), None)
                if old_id is not None:
                    found[new_id], rules[new_id] = old_id, RULES.index(rule)
                    break
    found[specials(size)] = specials(len(old.pieces))
    rules[specials(size)] = RULES.index("special")
    return Matches(Ragged(found[found >= 0], (found >= 0).astype(np.int64)), rules)


def _look_ups(
    index: _Index,
    dictionaries: Sequence[Dictionary],
    dictionaries_first: bool,
    accents: bool,
    place: bool,
) -> list[tuple[str, Callable[[Word], Iterator[int]]]]:
    """(rule, the old ids that it finds for a word, best first) of the rules in their order."""

    def translated(word: Word) -> Iterator[int]:
        if word.starts_word or is_spaceless(word.text):
            key = folded(word.text)
            for dictionary in dictionaries:
                for translation in dictionary.words.get(key, ()):
                    yield from _look_up(index, Word(translation, True), _SAME, _FOLDED)

    def elsewhere(word: Word) -> Iterator[int]:
        forms = (_SAME, _FOLDED, _UNACCENTED) if accents else (_SAME, _FOLDED)
        return _look_up(index, Word(word.text, not word.starts_word), *forms)

    strategy: list[tuple[str, Callable[[Word], Iterator[int]]]] = [
        ("exact", lambda word: _look_up(index, word, _SAME)),
        ("normalised", lambda word: _look_up(index, word, _FOLDED)),
    ]
    if dictionaries:
        strategy.insert(0 if dictionaries_first else 2, ("dictionary", translated))
    if accents:
        strategy.append(("accents", lambda word: _look_up(index, word, _UNACCENTED)))
    if place:
        strategy.append(("place", elsewhere))
    return strategy


def _look_up(index: _Index, word: Word, *forms: int) -> Iterator[int]:
    for form in forms:
        text = _FORMS[form](word.text)
        found = index[form].get(Word(text, word.starts_word))
        if found is not None and (text or not form):  # a mark without its letter is nothing
            yield found


def _index(old: Sequence[Word | None]) -> _Index:
    index: _Index = tuple({} for _ in _FORMS)
    for form, ids in zip(_FORMS, index, strict=True):
        late = []
        for old_id, word in enumerate(old):
            if word is not None:
                key = Word(form(word.text), word.starts_word)
                if key == word:
                    ids.setdefault(key, old_id)
                else:
                    late.append((key, old_id))
        for key, old_id in late:
            ids.setdefault(key, old_id)
    return index
