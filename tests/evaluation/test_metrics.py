"""Accuracy is the share of equal labels; invalid lists are refused.

Also chunks and their F1 equal values by hand, and another formulation on random sentences.
"""

import itertools
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from xlj.data.labelled.conll import Chunk, find_chunks
from xlj.evaluation.metrics import accuracy, chunk_scores


def test_accuracy_is_the_share_of_equal_labels():
    assert accuracy(["a", "b", "a"], ["a", "a", "a"]) == pytest.approx(2 / 3)
    assert accuracy([3], [4]) == 0


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError):
        accuracy(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="gold is empty"):
        accuracy([], [])


PREFIXED = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("PER", "LOC"))]
RAW = ["NOUN", "SCONJ", "CCONJ", "SYM", "INTJ", "X"]


@pytest.mark.parametrize(
    "tags, result",
    [
        ("O B-PER I-PER O", [("PER", 1, 3)]),
        ("I-PER I-PER", [("PER", 0, 2)]),  # no B- before it
        ("B-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        ("B-PER I-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3)]),
        ("B-PER E-PER I-PER", [("PER", 0, 2), ("PER", 2, 3)]),
        ("S-PER S-PER E-PER", [("PER", 0, 1), ("PER", 1, 2), ("PER", 2, 3)]),
        ("B-A-B I-A-B I-B", [("A-B", 0, 2), ("B", 2, 3)]),
        ("B I O I", [("", 0, 2), ("", 3, 4)]),
        ("O O", []),
        ("", []),
    ],
)
def test_chunks_are_found_as_by_hand(tags, result):
    assert find_chunks(tags.split()) == [Chunk(*chunk) for chunk in result]


@pytest.mark.parametrize(
    "tags, result",
    [
        ("NOUN NOUN VERB", [("NOUN", 0, 2), ("VERB", 2, 3)]),
        ("SCONJ SCONJ", [("SCONJ", 0, 1), ("SCONJ", 1, 2)]),
        ("SYM SYM CCONJ CCONJ", [("SYM", 0, 1), ("SYM", 1, 2), ("CCONJ", 2, 4)]),
        ("INTJ INTJ", [("INTJ", 0, 2)]),
    ],
)
def test_raw_chunks_are_found_as_by_hand(tags, result):
    assert find_chunks(tags.split(), raw=True) == [Chunk(*chunk) for chunk in result]


def plain_chunks(tags):
    """Finds chunks kind by kind, by a pattern over the string of prefixes."""
    result = set()
    for kind in {tag[2:] for tag in tags if tag != "O"}:
        prefixes = "".join(tag[0] if tag[2:] == kind else "O" for tag in tags)
        for match in re.finditer("S|E|[BI]I*E?", prefixes):
            result.add((kind, *match.span()))
    return result


def plain_raw_chunks(tags):
    result, start = set(), 0
    for tag, run in itertools.groupby(tags):
        length = len(list(run))
        if tag.startswith("S"):
            result |= {(tag, place, place + 1) for place in range(start, start + length)}
        else:
            result.add((tag, start, start + length))
        start += length
    return result


def plain_f1(predicted, gold, find):
    chunked = [
        {(number, *chunk) for number, tags in enumerate(side) for chunk in find(tags)}
        for side in (predicted, gold)
    ]
    total = sum(map(len, chunked))
    return 2 * len(chunked[0] & chunked[1]) / total if total else 0.0


def sentences(alphabet):
    """(predicted, gold) of each sentence's words."""
    words = st.lists(st.tuples(*[st.sampled_from(alphabet)] * 2), max_size=7)
    return st.lists(words, max_size=4)


def check_against_another_formulation(words, raw, find):
    predicted, gold = ([[pair[side] for pair in s] for s in words] for side in (0, 1))
    for tags in [*predicted, *gold]:
        result = find_chunks(tags, raw)
        assert result == sorted(result, key=lambda chunk: chunk.start)
        assert len(result) == len(set(result)) and set(result) == find(tags)
    scores = chunk_scores(predicted, gold, raw)
    assert scores.f1 == pytest.approx(plain_f1(predicted, gold, find), abs=1e-12)


@given(sentences(PREFIXED))
@example([[("I-PER", "B-PER"), ("E-PER", "I-PER")], [("S-LOC", "I-LOC"), ("O", "O")]])
def test_chunks_and_scores_equal_another_formulation(words):
    check_against_another_formulation(words, False, plain_chunks)


@given(sentences(RAW))
@example([[("SYM", "SYM"), ("SYM", "SYM"), ("X", "INTJ"), ("X", "X")]])
def test_raw_chunks_and_scores_equal_another_formulation(words):
    check_against_another_formulation(words, True, plain_raw_chunks)


def test_scores_equal_values_by_hand():
    gold = [["B-PER", "I-PER", "O"], ["B-LOC", "O"]]
    predicted = [["B-PER", "I-PER", "B-LOC"], ["O", "B-LOC"]]
    assert chunk_scores(predicted, gold) == pytest.approx((2 / 5, 1 / 3, 1 / 2))
    assert chunk_scores([["O"]], [["O"]]) == (0, 0, 0)


def test_different_numbers_of_sentences_or_words_are_refused():
    with pytest.raises(
        ValueError, match="sentence 2: 1 predicted tags for 2 words; expected one for each word"
    ):
        chunk_scores([["O"], ["O"]], [["O"], ["O", "O"]])
    with pytest.raises(ValueError):
        chunk_scores([["O"]], [["O"], ["O"]])
