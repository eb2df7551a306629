"""A task of sentence retrieval: two files of sentences, and which of them translate each other."""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.io import atomic
from xlj.retrieval import sentence_files


class Task(NamedTuple):
    """Sentences to find among others."""

    source: list[str]
    target: list[str]
    translations: np.ndarray | None
    """The source that each target translates, int64 [targets]; None if that of its line."""


def read(source: Path, target: Path, gold: Path | None) -> Task:
    """The task of two files, and of XTREME's labels if there are some.

    Raises:
      ConfigError: if a file cannot be read, or they do not fit each other.
    """
    sides = sentence_files.read(source), sentence_files.read(target)
    sizes = len(sides[0]), len(sides[1])
    if not gold and sizes[0] != sizes[1]:
        raise ConfigError(
            f"{source} has {sizes[0]} lines but {target} has {sizes[1]}; line i of one must be the "
            "translation of line i of the other, or --gold must say which is whose"
        )
    if sizes == (1, 1):
        raise ConfigError(f"{source} has one sentence, and so has {target}: there are no others")
    if gold:
        return Task(*sides, sentence_files.read_places(gold, *sizes))
    for path, side, other in ((source, *sides), (target, *sides[::-1])):
        if len(side) >= 10 and side == sorted(side) and other != sorted(other):
            print(
                f"{path} is sorted, as the English side of XTREME's Tatoeba is; if the lines do "
                "not translate each other one by one, give --gold",
                file=sys.stderr,
            )
    return Task(*sides, None)


def write(path: Path, places: np.ndarray) -> None:
    """XTREME's predictions: the nearest source of each target, int [targets], a line each."""
    atomic.write(path, "".join(f"{place}\n" for place in places).encode())
