"""The rows `paired-*` of docs/experiments/sentence_encoders.md: differences between models.

Each row compares ways of training that have rows of their own, on the same sentences. It trains the
models that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import sentence_rows
import teacher_rows
from result_rows import KEPT, SENTENCES, TRAINED_IN, mean_found, trim
from sentence_rows import PEER

from xlj.api.data_sets import Scores, percent
from xlj.evaluation.bootstrap import paired_bootstrap


class Pair(NamedTuple):
    """Two ways of training that are compared: the score of `way` minus that of `base`.

    Attributes:
      seeds: the seeds 0 to seeds - 1, whose models are averaged.
    """

    way: str
    base: str
    seeds: int = 1

    @property
    def name(self) -> str:
        return f"{self.way} minus {self.base}"


class Comparison(NamedTuple):
    """Pairs of ways that are compared on the same test sets.

    Attributes:
      trained: (way, seed, model before, folder of the data) -> the folder of the trained model.
      sets: the names of the test sets for `result_rows.found`.
      settings: of `result_rows.found`.
    """

    trained: Callable[[str, int, Path, Path], Path]
    pairs: Sequence[Pair]
    sets: Sequence[str]
    settings: dict[str, Any]


def encoder(way: str, seed: int, model: Path, data: Path) -> Path:
    return sentence_rows.train(way, seed, model, data)[0]


def student(way: str, seed: int, model: Path, data: Path) -> Path:
    return (encoder if way == "xlj" else teacher_rows.student)(way, seed, model, data)


def trimmed(way: str, seed: int, model: Path, data: Path) -> Path:
    return trim(f"healed {seed}" if way == "healed" else way, model, data)


SETTINGS = {"compute": TRAINED_IN, "first": sentence_rows.FIRST}
COMPARISONS = {
    "sentences": Comparison(
        encoder,
        [Pair(PEER, "xlj", 3), *(Pair(way, "xlj") for way in sentence_rows.WAYS if way != "xlj")],
        sentence_rows.SETS,
        SETTINGS,
    ),
    "taught-yo": Comparison(
        student,
        [
            *(Pair(way, "xlj", 3) for way in teacher_rows.MAIN),
            *(Pair(way, "teacher") for way in teacher_rows.FACTORS),
        ],
        sentence_rows.SETS,
        SETTINGS,
    ),
    "taught-english": Comparison(
        teacher_rows.taught_english, [Pair(PEER, "xlj", 3)], teacher_rows.SETS, SETTINGS
    ),
    "trimmed": Comparison(
        trimmed,
        [Pair("healed", base, 3) for base in ("pieces and first layers", "whole")],
        [
            f"{test} {code}"
            for language, of_tatoeba in list(KEPT.items())[1:]
            for test, code in (("ntrex", language), ("tatoeba", of_tatoeba))
        ],
        {"first": SENTENCES},
    ),
}


def compare(comparison: Comparison, model: Path, data: Path) -> Scores:
    """Returns for each pair of ways and each test set the difference in points, with the 95 %
    interval of the paired bootstrap over sentences."""
    scores: Scores = {}
    for pair in comparison.pairs:
        for name in comparison.sets:
            base, way = (
                mean_found(
                    [comparison.trained(each, seed, model, data) for seed in range(pair.seeds)],
                    name,
                    data,
                    **comparison.settings,
                )
                for each in (pair.base, pair.way)
            )
            difference = [percent(each) for each in paired_bootstrap(base, way)]
            scores.setdefault(pair.name, {})[name] = difference
    return scores


ROWS: dict[str, Callable[[Path, Path], Scores]] = {
    f"paired-{name}": partial(compare, comparison) for name, comparison in COMPARISONS.items()
}
"""The function that measures each row, from the model's folder and the folder of the data."""
