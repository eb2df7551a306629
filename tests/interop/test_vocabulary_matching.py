"""A new piece gets the old row of the first rule that matches, for all marker conventions."""

import random
import time

import numpy as np
import pytest
from marked_pieces import MarkedPieces

from xlj.interop.matched_rows import RULES
from xlj.interop.vocabulary_matching import match

BERT = MarkedPieces(
    ("the", "paris", "##ing", "dog", ",", "##,", "cafe", "fur", "##und", "and", "to", "[CLS]"),
    "wordpiece",
)

PAPER = ("dictionary", "exact", "normalised", "accents", "place")


def old_ids(matches):
    """Returns the old id of each new id; -1 without one."""
    sources, lengths = matches.sources, matches.sources.lengths
    assert lengths.max() == 1
    return np.where(lengths, sources.ids[np.cumsum(lengths) - 1], -1)


def match_pieces(old, pieces, *dictionaries, **options):
    """Returns (rule, old piece) of each new SentencePiece piece."""
    new = MarkedPieces(tuple(pieces))
    matches = match(old, new, dictionaries, **options)
    assert len(matches.rules) == len(new.pieces) == len(matches.sources.lengths)
    rules = [RULES[rule] for rule in matches.rules]
    none = matches.rules == RULES.index("none")
    assert (matches.sources.lengths == ~none).all()
    names = [None if i < 0 else old.pieces[i] for i in old_ids(matches)]
    return list(zip(rules, names, strict=True))[4:-1]


def test_special_tokens_match_by_role():
    bert = MarkedPieces(("<s>", "<mask>", "a"), "wordpiece")
    matches = match(bert, MarkedPieces(("▁a", "<mask2>")))
    assert old_ids(matches).tolist() == [0, 1, 2, 3, 6, -1, 7]
    assert [RULES[rule] for rule in matches.rules] == (
        ["special"] * 4 + ["exact", "none", "special"]
    )


def test_a_vocabulary_matches_itself():
    for vocabulary in (BERT, MarkedPieces(("▁a", "a", "A", "▁", "ä")),
                       MarkedPieces(("Ġa", "a", "A", "Ġ", "Ċ"), "byte_bpe")):  # fmt: skip
        matches = match(vocabulary, vocabulary)
        ids = np.arange(len(vocabulary.pieces))
        untrained = np.array([piece == "##," for piece in vocabulary.pieces])
        assert (old_ids(matches)[~untrained] == ids[~untrained]).all()


def test_the_first_rule_that_matches_is_used():
    pieces = ("▁the", "▁The", "ing", ",", "▁,", "▁Café", "▁ing", "the", "Ing", "▁xyz", "\u0301")
    assert match_pieces(BERT, pieces) == [
        ("exact", "the"),
        ("normalised", "the"),
        ("exact", "##ing"),
        ("exact", ","),
        ("place", ","),
        ("accents", "cafe"),
        ("place", "##ing"),
        ("place", "the"),
        ("normalised", "##ing"),
        ("none", None),
        ("none", None),
    ]


def test_dictionaries_come_before_guesses():
    german = {
        "für": ("because of", "for", "to"), "und": ("and",), "hund": ("DOG", "the"), "the": ("to",),
        "ing": ("dog",), "leer": ("nothing",),
    }  # fmt: skip
    pieces = ("▁für", "▁und", "▁Hund", "▁The", "ing", "und", "▁leer")
    assert match_pieces(BERT, pieces) == [
        ("accents", "fur"),
        ("place", "##und"),
        ("none", None),
        ("normalised", "the"),
        ("exact", "##ing"),
        ("exact", "##und"),
        ("none", None),
    ]
    assert match_pieces(BERT, pieces, german) == [
        ("dictionary", "to"),  # the first translation that is one old piece
        ("dictionary", "and"),
        ("dictionary", "dog"),
        ("normalised", "the"),
        ("exact", "##ing"),
        ("exact", "##und"),
        ("none", None),
    ]
    other = {"leer": ("the",), "hund": ("cafe",)}
    both = match_pieces(BERT, pieces, german, other)
    assert both[2] == ("dictionary", "dog") and both[6] == ("dictionary", "the")


def test_dictionaries_can_come_first_as_in_the_paper():
    """Chi et al. (2021, section 3.2): "first searching the word translation in the dictionaries,
    and then applying the mapping strategy"."""
    german = {"the": ("to",), "fur": ("and",), "dog": ("of", "Paris")}
    pieces = ("▁the", "▁The", "▁Dog", "ing", "▁café", "▁paris", "▁xyz")
    without_dictionary = ["the", "the", "dog", "##ing", "cafe", "paris", None]
    assert [piece for _, piece in match_pieces(BERT, pieces, german)] == without_dictionary
    assert match_pieces(BERT, pieces, german, rules=PAPER) == [
        ("dictionary", "to"),
        ("dictionary", "to"),
        ("dictionary", "paris"),
        ("exact", "##ing"),
        ("accents", "cafe"),
        ("exact", "paris"),
        ("none", None),
    ]


@pytest.mark.parametrize("accents", [True, False])
@pytest.mark.parametrize("place", [True, False])
def test_guesses_can_be_switched_off(accents, place):
    pieces = ("▁Café", "▁und", "▁Ing", "▁Íng", "ing", "▁The")
    rules = [*PAPER[1:3], *["accents"] * accents, *["place"] * place]
    assert match_pieces(BERT, pieces, rules=rules) == [
        ("accents", "cafe") if accents else ("none", None),
        ("place", "##und") if place else ("none", None),
        ("place", "##ing") if place else ("none", None),
        ("place", "##ing") if place and accents else ("none", None),
        ("exact", "##ing"),
        ("normalised", "the"),
    ]


def test_in_scripts_without_spaces_pieces_without_markers_are_words():
    words = {"狗": ("dog",), "หมา": ("dog",), "개": ("dog",)}
    assert match_pieces(BERT, ("狗", "หมา", "개", "▁개"), words) == [
        ("dictionary", "dog"),
        ("dictionary", "dog"),
        ("none", None),
        ("dictionary", "dog"),
    ]


def test_translations_match_pieces_that_start_words():
    old = MarkedPieces(("dog", "ĠDog", "Ġcat", "cat"), "byte_bpe")
    german = {"hund": ("dog",), "katze": ("cat",)}
    assert match_pieces(old, ("▁Hund", "▁Katze"), german) == [
        ("dictionary", "ĠDog"),
        ("dictionary", "Ġcat"),
    ]


def test_pieces_without_text_match_only_exactly():
    old = MarkedPieces(("▁a", "▁", "▁a\u0301"))
    assert match_pieces(old, ("▁", "▁\u0301", "\u0301")) == [("exact", "▁")] + [("none", None)] * 2


def test_the_nearest_form_comes_first():
    old = MarkedPieces(("##cafe", "##café", "the", "##Zoé", "##zoe", "##zoé"), "wordpiece")
    pieces = ("▁café", "▁CAFÉ", "▁Zoé", "▁ZOÉ", "▁zoë")
    expected = ["##café", "##café", "##Zoé", "##zoé", "##zoe"]
    assert [piece for _, piece in match_pieces(old, pieces)] == expected
    assert [
        piece for _, piece in match_pieces(old, pieces, rules=("exact", "normalised", "place"))
    ] == [*expected[:4], None]
    old = MarkedPieces(("Ġdog", "ĠDog"), "byte_bpe")
    german = {"hund": ("Dog",), "dogge": ("DOG",)}
    assert [piece for _, piece in match_pieces(old, ("▁Hund", "▁Dogge"), german)] == [
        "ĠDog",
        "Ġdog",
    ]


def test_ties_are_won_by_the_piece_in_normal_form_then_by_the_first_piece():
    old = MarkedPieces(("ĠTHE", "ĠThe", "ĠÃ©", "Ġthe", "ĠE", "Ġe"), "byte_bpe")
    assert match_pieces(old, ("▁tHe", "▁È")) == [("normalised", "Ġthe"), ("accents", "Ġe")]
    first = MarkedPieces(("ĠTHE", "ĠThe"), "byte_bpe")
    assert match_pieces(first, ("▁the",)) == [("normalised", "ĠTHE")]


@pytest.mark.slow
def test_matching_vocabularies_of_full_size_takes_less_than_a_minute():
    letters = [chr(k) for k in (*range(0x61, 0x7B), *range(0xC0, 0xF0), *range(0x430, 0x450))]

    def pieces(seed):
        rng = random.Random(seed)
        words = ("".join(rng.choices(letters, k=rng.randint(3, 8))) for _ in range(260_000))
        return MarkedPieces(tuple(dict.fromkeys(f"▁{x}" for x in words))[:249_997])

    old, new = pieces(0), pieces(1)
    began = time.monotonic()
    matches = match(old, new)
    assert time.monotonic() - began < 60
    assert (matches.rules == RULES.index("none")).mean() > 0.5
