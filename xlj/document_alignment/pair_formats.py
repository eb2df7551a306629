"""Formats of aligned pairs: lines of columns, JSON lines, TMX, and ladders."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from xlj.data.text.splitting import join
from xlj.document_alignment.aligner import Pair
from xlj.document_alignment.documents import Document
from xlj.io import tmx


class Aligned(NamedTuple):
    """Two documents and pairs of them.

    Attributes:
      pairs: the pairs, or all steps of the alignment.
      names: the names of both documents in outputs of several documents; else empty.
    """

    source: Document
    target: Document
    pairs: Sequence[Pair]
    names: Sequence[str] = ()

    def sides(self, pair: Pair) -> list[list[str]]:
        """Returns the sentences of both sides of a pair."""
        documents = ((self.source, pair.source), (self.target, pair.target))
        return [[document.texts[k] for k in sentences] for document, sentences in documents]

    def numbers(self, pair: Pair) -> tuple[list[int], list[int]]:
        """Returns the numbers of both sides of a pair."""
        return self.source.numbers_of(pair.source), self.target.numbers_of(pair.target)

    def ids(self, pair: Pair) -> list[list[str]]:
        """Returns the ids of both sides of a pair; empty if no document has ids."""
        ids = [self.source.ids_of(pair.source), self.target.ids_of(pair.target)]
        return ids if any(ids) else []


def select(aligned: Aligned, threshold: float) -> Aligned:
    """Returns the pairs with a confidence of at least `threshold`, without gaps."""
    pairs = (pair for pair in aligned.pairs if not pair.is_gap)
    return aligned._replace(pairs=[pair for pair in pairs if pair.confidence >= threshold])


def _each(documents: Sequence[Aligned]) -> Iterator[tuple[Aligned, Pair]]:
    for aligned in documents:
        for pair in aligned.pairs:
            yield aligned, pair


def columns(documents: Sequence[Aligned], with_scores: bool) -> Iterator[str]:
    """Yields lines `source TAB target`, with the confidence and with the ids of both sides as
    further columns. The ids of a side are separated by spaces."""
    for aligned, pair in _each(documents):
        row = [" ".join(join(side).split()) for side in aligned.sides(pair)]
        row += [f"{pair.confidence:.4f}"] if with_scores else []
        row += [" ".join(side) for side in aligned.ids(pair)]
        yield "\t".join(row) + "\n"


def records(documents: Sequence[Aligned], with_scores: bool) -> Iterator[str]:
    """Yields JSON lines with the texts, the sentences, the numbers and the ids of both sides, and
    the names of the documents."""
    for aligned, pair in _each(documents):
        sides, numbers, ids = aligned.sides(pair), aligned.numbers(pair), aligned.ids(pair)
        record: dict = {"source": join(sides[0]), "target": join(sides[1])}
        record |= {"confidence": round(pair.confidence, 4)} if with_scores else {}
        names = aligned.names
        more = (("sentences", sides), ("lines", numbers), ("ids", ids), ("document", names))
        for name, values in more:
            for side, value in zip(("source", "target"), values, strict=False):
                record[f"{side}_{name}"] = value
        yield json.dumps(record, ensure_ascii=False) + "\n"


def units(
    documents: Sequence[Aligned], with_scores: bool, languages: Sequence[str]
) -> Iterator[str]:
    """Yields the parts of a TMX file."""
    yield tmx.head(languages[0])
    for aligned, pair in _each(documents):
        properties = {"confidence": f"{pair.confidence:.4f}"} if with_scores else {}
        ids = (" ".join(side) for side in aligned.ids(pair))
        for name, values in (("ids", ids), ("document", aligned.names)):
            for side, value in zip(("source", "target"), values, strict=False):
                properties[f"{side}-{name}"] = value
        source, target = map(join, aligned.sides(pair))
        yield tmx.unit({languages[0]: source, languages[1]: target}, properties)
    yield tmx.TAIL


def ladder(documents: Sequence[Aligned]) -> Iterator[str]:
    """Yields a line for each pair: two lists of numbers; if there are ids, two lists of ids; and
    the names of the documents as JSON."""
    for aligned, pair in _each(documents):
        more = (json.dumps(x, ensure_ascii=False) for x in [*aligned.ids(pair), *aligned.names])
        yield "\t".join([*map(str, aligned.numbers(pair)), *more]) + "\n"


Writer = Callable[[Sequence[Aligned]], Iterable[str]]


def writer(name: str, with_scores: bool, languages: Sequence[str]) -> Writer:
    """Returns the function that writes the pairs in a format of `choices.PAIR_FORMATS`."""
    if name == "tmx":
        return lambda documents: units(documents, with_scores, languages)
    write = {"tsv": columns, "jsonl": records}[name]
    return lambda documents: write(documents, with_scores)
