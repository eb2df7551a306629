"""Mines negatives of examples: passages that are similar to a query, but less than its positive.

Source of the margins: NV-Retriever (Moreira et al., 2024), which compares each candidate with the
positive.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.data.text.example_sources import open_examples
from xlj.data.text.sources import TextSource
from xlj.io import atomic
from xlj.io.malformed import Malformed
from xlj.io.storage import AnyPath
from xlj.retrieval.search import Neighbours, unit

_PART_BYTES = 32 << 20


class Examples(NamedTuple):
    """Queries and their positives, as indices into distinct passages.

    Attributes:
      queries: the distinct queries, in the order of the files.
      passages: the distinct positives, then the other passages of a corpus.
      positives: the positives of each query, indices of `passages` in order.
    """

    queries: list[str]
    passages: list[str]
    positives: list[list[int]]


def read(template: str, corpus: Iterable[str] = ()) -> Examples:
    """Reads the examples that a template of `data.examples` names, without their negatives.

    Args:
      template: the template, without placeholders.
      corpus: further passages.

    Raises:
      ConfigError: if no file exists, a record cannot be read, or there is no record.
    """
    places: dict[str, int] = {}
    positives: dict[str, dict[int, None]] = {}
    for source in _sources(template):
        for part in source.parts(_PART_BYTES):
            before = 0
            for block in part.blocks():
                for number, (query, positive) in enumerate(zip(*block, strict=True), before):
                    if isinstance(query, Malformed):
                        before_it = query.before if query.before >= 0 else number
                        place = source.place(part.start, before_it)
                        raise ConfigError(f"{place}{query.problem}")
                    place_of_text = places.setdefault(str(positive).strip(), len(places))
                    positives.setdefault(str(query).strip(), {})[place_of_text] = None
                before += len(block[0])
    if not positives:
        raise ConfigError(f"--examples={template}: no record is an example")
    for passage in corpus:
        if passage.strip():
            places.setdefault(passage.strip(), len(places))
    return Examples([*positives], [*places], [[*each] for each in positives.values()])


def files_of(template: str) -> list[AnyPath]:
    """Returns the files of a template, as `read`."""
    return [path for source in _sources(template) for path in getattr(source, "paths", ())]


def _sources(template: str) -> list[TextSource]:
    sources = open_examples(template, ("query", "positive"), 0, 1, "--examples")
    if not sources:
        raise ConfigError(f"--examples={template}: no such file")
    return sources


@dataclasses.dataclass(frozen=True)
class Rule:
    """Which passages become negatives of a query.

    Attributes:
      first, last: the range of ranks among the passages, from 1, without the positives and the
        query.
      count: the largest number of negatives of a query: the most similar ones.
      margin: a negative's cosine is at most the cosine of the least similar positive minus this.
      relative_margin: a negative's cosine is at most this share of the cosine of that positive.
    """

    first: int
    last: int
    count: int
    margin: float
    relative_margin: float


NEAREST = "more similar than the range of ranks"
MARGIN = "above the absolute margin"
RELATIVE = "above the relative margin"
SURPLUS = "beyond the number of negatives"


def select(
    examples: Examples,
    found: Neighbours,
    cosines: Sequence[Sequence[float]],
    rule: Rule,
) -> tuple[list[list[tuple[int, float]]], Counter[str]]:
    """Selects the negatives of each query.

    Args:
      found: the most similar passages of each query, best first: at least `last` and as many more
        as a query has positives, and one for the query itself.
      cosines: the cosine of each query with each of its positives.

    Returns:
      For each query, the indices and cosines of its negatives, best first; and the number of
      passages in `found` that are no negatives, by reason.
    """
    selected: list[list[tuple[int, float]]] = []
    dropped: Counter[str] = Counter()
    own_text = {text: number for number, text in enumerate(examples.passages)}
    for query, positives, of_positives, scores, indices in zip(
        examples.queries, examples.positives, cosines, found.scores, found.indices, strict=True
    ):
        own, lowest = {*positives, own_text.get(query, -1)}, min(of_positives)
        limit = lowest - rule.margin
        relative = lowest * rule.relative_margin
        others = [
            (int(place), float(score))
            for place, score in zip(indices, scores, strict=True)
            if int(place) not in own and np.isfinite(score)
        ][: rule.last]
        negatives: list[tuple[int, float]] = []
        for rank, (place, score) in enumerate(others, 1):
            if rank < rule.first:
                dropped[NEAREST] += 1
            elif score > limit:
                dropped[MARGIN] += 1
            elif score > relative:
                dropped[RELATIVE] += 1
            elif len(negatives) == rule.count:
                dropped[SURPLUS] += 1
            else:
                negatives.append((place, score))
        selected.append(negatives)
    return selected, dropped


def mine(
    examples: Examples,
    queries: np.ndarray,
    passages: np.ndarray,
    search: Callable[[np.ndarray], Neighbours],
    rule: Rule,
) -> tuple[list[list[tuple[int, float]]], list[list[float]], Counter[str]]:
    """Mines the negatives of examples.

    Args:
      queries, passages: the vectors of the queries and the passages, float32 [n, width].
      search: finds passages for query vectors: `searched` passages for each query.

    Returns:
      The negatives (`select`), the cosines of the positives, and the counts of dropped passages.
    """
    cosines = [
        (unit(passages[of], np) @ unit(query[None], np)[0]).tolist()
        for of, query in zip(examples.positives, queries, strict=True)
    ]
    negatives, dropped = select(examples, search(queries), cosines, rule)
    return negatives, cosines, dropped


def searched(examples: Examples, rule: Rule) -> int:
    """Returns the number of passages to search for each query, so that `rule.last` remain without
    the positives and the query."""
    return rule.last + 1 + max(map(len, examples.positives))


def write(
    path: AnyPath,
    examples: Examples,
    negatives: Sequence[Sequence[tuple[int, float]]],
    cosines: Sequence[Sequence[float]],
) -> None:
    """Writes a JSON line for each query, in BGE's form: `query`, `pos`, `neg`, `pos_scores` and
    `neg_scores`, which are cosines."""
    with atomic.writing(path) as out:
        for query, positives, scores, found in zip(
            examples.queries, examples.positives, cosines, negatives, strict=True
        ):
            record = {
                "query": query,
                "pos": [examples.passages[place] for place in positives],
                "neg": [examples.passages[place] for place, _ in found],
                "pos_scores": [round(score, 6) for score in scores],
                "neg_scores": [round(score, 6) for _, score in found],
            }
            out.write((json.dumps(record, ensure_ascii=False) + "\n").encode())
