"""Semantic textual similarity (STS): reads pairs with gold scores, and correlates scores with them.

Source: Cer et al. (2017), "SemEval-2017 Task 1". Files are tables or records with columns named as
in published data sets, tables `sentence TAB sentence TAB score`, or the files of the STS benchmark
without a header.
"""

import csv
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.data.labelled import records, tables
from xlj.evaluation.metrics import pearson, spearman
from xlj.io import files

_NAMES = (
    "sentence1|sentence_1|sentence_A|text1",
    "sentence2|sentence_2|sentence_B|text2",
    "score|similarity_score|relatedness_score|relatedness|similarity|label",
)
_GENRE = "genre"
_BENCHMARK = ("6", "7", "5")  # of the STS benchmark: genre, file, year, id, score, two sentences
_BENCHMARK_FILE = "2"
_SPLITS = (5749, 1500, 1379)  # pairs in the training, dev and test files of the STS benchmark


class RatedPairs(NamedTuple):
    """Sentence pairs with gold scores.

    Attributes:
      genres: the number of pairs by genre; empty if the file has no genres.
    """

    pairs: list[tuple[str, str]]
    scores: list[float]
    genres: dict[str, int]

    @property
    def warning(self) -> str:
        """Why the correlation does not compare with published ones; empty if no reason is known."""
        if not self.genres or len(self.pairs) in _SPLITS:
            return ""
        return (
            f"{len(self.pairs):,} pairs of {', '.join(self.genres)}: not a whole file of the STS "
            f"benchmark (dev {_SPLITS[1]:,}, test {_SPLITS[2]:,} pairs), so the correlations do "
            "not compare with published ones"
        )


class Correlations(NamedTuple):
    """Correlations of scores with gold scores, from -1 to 1."""

    spearman: float
    pearson: float


def correlate(scores: list[float], gold: list[float]) -> Correlations:
    """Computes both correlations.

    Raises:
      ValueError: if the arguments differ in length, or have fewer than two scores.
    """
    return Correlations(spearman(scores, gold), pearson(scores, gold))


def read(path: Path) -> RatedPairs:
    """Reads sentence pairs with gold scores.

    Raises:
      ConfigError: if the file cannot be read, a line is invalid or has no score, or there are fewer
        than two pairs.
    """
    columns, genre = _columns(path)
    pairs, scores = [], []
    for example in tables.read(path, columns):
        score = tables.parse_score(example.label, example.place)
        first, second = (*example.texts, "")[:2]
        if score is None or not (first.strip() and second.strip()):
            raise ConfigError(f"{example.place}: expected two sentences and a score")
        pairs.append((first, second))
        scores.append(score)
    if len(pairs) < 2:
        raise ConfigError(f"{path} has fewer than two pairs; a correlation needs at least two")
    genres = Counter[str]()
    if genre:
        named = tables.read(path, (*columns[:2], genre))
        genres = Counter(example.label or "none" for example in named)
    return RatedPairs(pairs, scores, dict(genres))


def _columns(path: Path) -> tuple[tuple[str, ...], str]:
    """Returns the columns of sentences and score, and the column of genres; empty for none."""
    if records.has_records(path):
        return _NAMES, ""
    first_line = next(files.lines(path), "")
    fields = first_line.split("\t")
    if len(fields) == 1:
        fields = next(csv.reader([first_line], delimiter=";" if ";" in first_line else ","), [])
    if set(fields) & set(re.split(r"\|", "|".join(_NAMES[:2]))):
        return _NAMES, _GENRE if _GENRE in fields else ""
    if len(fields) >= 7:
        return _BENCHMARK, _BENCHMARK_FILE
    return (), ""
