"""Formats of aligned pairs: lines of columns, JSON lines, TMX, and ladders."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from xlj.data.text.splitting import join
from xlj.document_alignment.aligner import Pair
from xlj.document_alignment.documents import Document
from xlj.io import tmx


class Aligned(NamedTuple):
    """Two documents and pairs of them."""

    source: Document
    target: Document
    pairs: Sequence[Pair]

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


def columns(aligned: Aligned, with_scores: bool) -> Iterator[str]:
    """Yields lines `source TAB target`, with the confidence and with the ids of both sides as
    further columns. The ids of a side are separated by spaces."""
    for pair in aligned.pairs:
        row = [" ".join(join(side).split()) for side in aligned.sides(pair)]
        row += [f"{pair.confidence:.4f}"] if with_scores else []
        row += [" ".join(side) for side in aligned.ids(pair)]
        yield "\t".join(row) + "\n"


def records(aligned: Aligned, with_scores: bool) -> Iterator[str]:
    """Yields JSON lines with the texts, the sentences, the numbers and the ids of both sides."""
    for pair in aligned.pairs:
        sides, numbers, ids = aligned.sides(pair), aligned.numbers(pair), aligned.ids(pair)
        record: dict = {"source": join(sides[0]), "target": join(sides[1])}
        record |= {"confidence": round(pair.confidence, 4)} if with_scores else {}
        for name, values in (("sentences", sides), ("lines", numbers), ("ids", ids)):
            for side, value in zip(("source", "target"), values, strict=False):
                record[f"{side}_{name}"] = value
        yield json.dumps(record, ensure_ascii=False) + "\n"


def units(aligned: Aligned, with_scores: bool, languages: Sequence[str]) -> Iterator[str]:
    """Yields the parts of a TMX file."""
    yield tmx.head(languages[0])
    for pair in aligned.pairs:
        properties = {"confidence": f"{pair.confidence:.4f}"} if with_scores else {}
        for side, ids in zip(("source", "target"), aligned.ids(pair), strict=False):
            properties[f"{side}-ids"] = " ".join(ids)
        source, target = map(join, aligned.sides(pair))
        yield tmx.unit({languages[0]: source, languages[1]: target}, properties)
    yield tmx.TAIL


def ladder(aligned: Aligned) -> Iterator[str]:
    """Yields a line for each pair: two lists of numbers and, if there are ids, two lists of ids."""
    for pair in aligned.pairs:
        ids = (json.dumps(side, ensure_ascii=False) for side in aligned.ids(pair))
        yield "\t".join([*map(str, aligned.numbers(pair)), *ids]) + "\n"


Writer = Callable[[Aligned], Iterable[str]]


def writer(name: str, with_scores: bool, languages: Sequence[str]) -> Writer:
    """Returns the function that writes the pairs in a format of `choices.PAIR_FORMATS`."""
    if name == "tmx":
        return lambda aligned: units(aligned, with_scores, languages)
    write = {"tsv": columns, "jsonl": records}[name]
    return lambda aligned: write(aligned, with_scores)
