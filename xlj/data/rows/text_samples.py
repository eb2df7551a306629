"""Samples training and held-out text of a language or pair."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from xlj.data.rows.prepasses import Text
from xlj.data.text import held_out
from xlj.data.text.cleaning import BLANK
from xlj.data.text.held_out import Rule
from xlj.data.text.reading import UnitReader
from xlj.io import hashing
from xlj.io.hashing import name_hash

Columns = tuple[list[str], ...]
"""Clean lines of one language, or of both sides of pairs."""


class TextSample(NamedTuple):
    """Sampled lines of a language, or pairs of two languages."""

    train: Columns
    held_out: Columns
    is_whole: bool
    """Whether the sample is the whole text."""


def sample(
    text: Text, rules: Mapping[str, Rule], characters: int, most_held_out: int
) -> TextSample:
    """Samples lines of a task: reads whole units, in the order of a hash, until it has enough.

    Args:
      rules: the held-out rule of each language.
      characters: the number of characters of training lines that is enough.
      most_held_out: the most held-out lines or pairs to return.
    """
    languages = text.task.languages
    ours = [rules[language] for language in languages]
    train: list[list[str]] = [[] for _ in languages]
    held: list[list[str]] = [[] for _ in languages]
    order = sorted(range(len(text.units)), key=lambda unit: name_hash(f"{text.task.name}/{unit}"))
    taken, is_whole = 0, True
    for index in order:
        if taken >= characters:
            is_whole = False
            break
        for chunk in UnitReader(text.units[index], index, text.reading).chunks():
            is_out, is_dropped = held_out.split(languages, chunk.hashes, ours)
            has_text = np.all([hashes != BLANK for hashes in chunk.hashes], axis=0)
            for place in np.flatnonzero(has_text & ~is_dropped).tolist():
                into = held if is_out[place] else train
                for lines, column in zip(into, chunk.columns, strict=True):
                    lines.append(column[place])
                if not is_out[place]:
                    taken += len(chunk.columns[0][place])
    kept = sorted(hashing.sample(most_held_out, len(held[0])))
    return TextSample(
        tuple(train), tuple([lines[place] for place in kept] for lines in held), is_whole
    )
