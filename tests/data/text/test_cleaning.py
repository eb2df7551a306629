"""Cleaning many lines together gives the same result as cleaning each line."""

import random

import pytest

from xlj.data.text.cleaning import clean, clean_all

BLANKS = ("  ", "\n", "\t", "\u00a0", "\u2028", "\u3000", "\x00")


@pytest.mark.parametrize("blank", ["", *BLANKS])
def test_groups_are_cleaned_as_lines_are(blank):
    draw = random.Random(0)
    letters = [" ", "a", "b", "\u00e9", "\u4e2d", blank]
    for _ in range(2000):  # as many are clean as are not
        lines = [
            "".join(draw.choices(letters, (1, 9, 9, 3, 3, 0.1), k=draw.randint(0, 6)))
            for _ in range(draw.randint(0, 12))
        ]
        assert clean_all(lines) == [clean(line) for line in lines]


def test_more_than_a_group_and_long_lines():
    lines = [f" line  {i} " * (1 + (i == 200) * 200_000) for i in range(400)]
    assert clean_all(lines) == [clean(line) for line in lines]
    assert clean_all(lines)[3] == "line 3"
