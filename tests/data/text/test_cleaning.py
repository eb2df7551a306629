"""Cleaning many lines together gives the same result as cleaning each line."""

import random

import pytest

from xlj.data.text.cleaning import clean, clean_all

BLANKS = ("  ", "\n", "\t", "\u00a0", "\u2028", "\u3000", "\x00")


@pytest.mark.parametrize("blank", ["", *BLANKS])
def test_groups_of_lines_are_cleaned_like_single_lines(blank):
    draw = random.Random(0)
    letters = [" ", "a", "b", "\u00e9", "\u4e2d", blank]
    for _ in range(2000):  # about half of the groups are clean already
        lines = [
            "".join(draw.choices(letters, (1, 9, 9, 3, 3, 0.1), k=draw.randint(0, 6)))
            for _ in range(draw.randint(0, 12))
        ]
        assert clean_all(lines) == [clean(line) for line in lines]


def test_several_groups_and_long_lines_are_cleaned():
    lines = [f" line  {i} " * (1 + (i == 200) * 200_000) for i in range(400)]
    assert clean_all(lines) == [clean(line) for line in lines]
    assert clean_all(lines)[3] == "line 3"
