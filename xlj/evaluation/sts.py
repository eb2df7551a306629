"""Semantic textual similarity (STS): reads pairs with gold scores, and correlates scores with them.

Source: Cer et al. (2017), "SemEval-2017 Task 1". Files are tables or records with columns named as
in published data sets, tables `sentence TAB sentence TAB score`, or the files of the STS benchmark
without a header.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.data.labelled import records, tables
from xlj.evaluation.metrics import pearson, spearman
from xlj.io import files

_BENCHMARK = ("6", "7", "5")  # of the STS benchmark: genre, file, year, id, score, two sentences
_BENCHMARK_FILE = "2"  # whose names are finer than those of the genres
_GENRE = "genre"
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


def read(path: Path, columns: Sequence[str] = ()) -> RatedPairs:
    """Reads sentence pairs with gold scores.

    Args:
      columns: the two columns or keys of the sentences, then that of the score, as in
        `tables.read`. If empty, the usual names, else the first three columns.

    Raises:
      ConfigError: if the file cannot be read, a line is invalid or has no score, or there are fewer
        than two pairs.
    """
    genres = Counter[str]()
    if not columns and not records.has_records(path):
        columns, genres = _find_columns(path)
    pairs, scores = [], []
    for example in tables.read(path, columns, label_keys=records.SCORE_KEYS):
        score = tables.parse_score(example.label, example.place)
        first, second = (*example.texts, "")[:2]
        if score is None or not (first.strip() and second.strip()):
            raise ConfigError(f"{example.place}: expected two sentences and a score")
        pairs.append((first, second))
        scores.append(score)
    if len(pairs) < 2:
        raise ConfigError(f"{path} has fewer than two pairs; a correlation needs at least two")
    return RatedPairs(pairs, scores, dict(genres))


def _find_columns(path: Path) -> tuple[tuple[str, ...], Counter[str]]:
    """Returns the columns of a file of the STS benchmark, and the number of pairs by genre.

    Both are empty for other tables.
    """
    line = next(files.lines(path), "")
    fields = line.split("\t" if "\t" in line else ",")
    if len(fields) >= 7 and not {*fields} & {*records.SCORE_KEYS}:
        named = tables.read(path, (*_BENCHMARK[:2], _BENCHMARK_FILE))
        return _BENCHMARK, Counter(example.label or "none" for example in named)
    if _GENRE in fields:
        return (), Counter(row[_GENRE] or "none" for row, _ in tables.read_named(path))
    return (), Counter()
