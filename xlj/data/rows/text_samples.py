"""Samples training and held-out text of a language or pair."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from xlj.data.rows.prepasses import Text
from xlj.data.text import held_out
from xlj.data.text.cleaning import BLANK
from xlj.data.text.held_out import Rule
from xlj.data.text.text_units import UnitReader
from xlj.io import hashing
from xlj.io.hashing import name_hash

Columns = tuple[list[str], ...]
"""Clean lines of one language, or of the two sides of pairs."""


class TextSample(NamedTuple):
    """Sampled lines of a language, or sampled pairs of two languages.

    Attributes:
      train: training lines or pairs.
      held_out: held-out lines or pairs.
      is_whole: whether all units of the text were read, so `train` has all training lines.
    """

    train: Columns
    held_out: Columns
    is_whole: bool


def sample(text: Text, rules: Mapping[str, Rule], characters: int, max_held_out: int) -> TextSample:
    """Samples lines of a text.

    Whole units of the text (the parts that one process reads) are read in the order of a hash,
    until the training lines have enough characters.

    Args:
      text: the text.
      rules: the held-out rule of each language.
      characters: the number of characters of training lines at which reading stops. For pairs, it
        counts only the characters of the first sentences.
      max_held_out: maximum number of held-out lines or pairs to return.
    """
    languages = text.task.languages
    rules_of_columns = [rules[language] for language in languages]
    train: list[list[str]] = [[] for _ in languages]
    held: list[list[str]] = [[] for _ in languages]
    order = sorted(range(len(text.units)), key=lambda unit: name_hash(f"{text.task.name}/{unit}"))
    sampled_characters, is_whole = 0, True
    for index in order:
        if sampled_characters >= characters:
            is_whole = False
            break
        for chunk in UnitReader(text.units[index], index, text.reading).chunks():
            is_held_out, is_dropped = held_out.split(languages, chunk.hashes, rules_of_columns)
            has_text = np.all([hashes != BLANK for hashes in chunk.hashes], axis=0)
            for index_in_chunk in np.flatnonzero(has_text & ~is_dropped).tolist():
                target = held if is_held_out[index_in_chunk] else train
                for lines, column in zip(target, chunk.columns, strict=True):
                    lines.append(column[index_in_chunk])
                if not is_held_out[index_in_chunk]:
                    sampled_characters += len(chunk.columns[0][index_in_chunk])
    chosen = sorted(hashing.sample(max_held_out, len(held[0])))
    return TextSample(
        tuple(train), tuple([lines[index] for index in chosen] for lines in held), is_whole
    )
