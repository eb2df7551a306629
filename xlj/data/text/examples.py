"""Reads examples of sentence encoders: records with a query, positives, negatives and scores.

The fields of a record are found by their names: those of sentence-transformers (`anchor`,
`positive`, `negative` or `negative_1` and so on; `sentence1`, `sentence2`, `score`), or of BGE
(`query`, `pos`, `neg`, `pos_scores`, `neg_scores`), whose fields have lists. A template may name
other fields. A record with several positives is one example for each positive.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from xlj.config import ConfigError
from xlj.io import files, json_file
from xlj.io.columns import first_lines
from xlj.io.malformed import INVALID_UTF8, NUL, Counted, Line, Malformed
from xlj.io.storage import AnyPath

VERSION = 2
"""Version of `Reader.examples`. It is part of the hashes of rows."""

QUERIES = ("query", "anchor", "sentence1")
POSITIVES = ("positive", "pos", "sentence2")
SCORES = "scores"
"""The column of examples that has numbers, not text."""
_NEGATIVE = re.compile(r"neg|negatives?|negative_\d+")
_SCORES = (SCORES, "score", "label")
_LARGEST = float(np.finfo(np.float32).max)

BEYOND = "negatives beyond the first {}"
REPEATED = "negatives that are the query or a positive of their record"
BLANK = "blank negatives"
WITHOUT = "examples without negatives, whose scores teach nothing"


@dataclasses.dataclass(frozen=True)
class Reader:
    """Converts records to examples.

    Attributes:
      negatives: the largest number of negatives of an example.
      scored: whether examples have scores.
      fields: names of the fields of the query, of the positives and of the negatives; empty to find
        them by their names.
      only: a field and its value in the records that are read; other records belong to another
        language. Empty to read all records.
    """

    negatives: int
    scored: bool
    fields: tuple[str, ...] = ()
    only: tuple[str, str] | tuple[()] = ()

    @property
    def columns(self) -> int:
        """The number of columns of an example."""
        return 2 + self.negatives + self.scored

    def malformed(self, bad: Malformed) -> list[list[Line]]:
        """Returns a record that cannot be read, as an example."""
        return [[bad] * self.columns]

    def examples(self, record: Any) -> list[list[Line]]:
        """Returns the examples of a record: for each positive, its columns.

        The last column of scored examples has the scores of the positive and of the negatives,
        separated by spaces. A `Malformed` replaces a record that cannot be read.

        Args:
          record: values by name; texts, numbers and lists of them.
        """
        if not isinstance(record, dict):
            return self.malformed(Malformed("no JSON object", " is not a JSON object"))
        try:
            if self.only and self.only[0] not in record:
                raise _missing(record, self.only[0])
            if self.only and str(record[self.only[0]]) != self.only[1]:
                return []
            return self._examples(record)
        except _Problem as problem:
            return self.malformed(problem.malformed)

    def _examples(self, record: Mapping[str, Any]) -> list[list[Line]]:
        query_field, positive_field, *negative_fields = self.fields or self._find_fields(record)
        (query,) = _texts(record, query_field, is_list=False)
        positives = _texts(record, positive_field)
        for field, texts in ((query_field, [query]), (positive_field, positives)):
            if not texts or not all(text.strip() for text in texts):
                raise _Problem("blank side", f": field {field} is blank, or has a blank text")
        given = [text for field in negative_fields for text in _texts(record, field)]
        scores = self._scores(record, len(positives), len(given)) if self.scored else []
        own = {text.strip() for text in (query, *positives)}
        negatives: list[int] = []
        counts = {BLANK: 0, REPEATED: 0, BEYOND.format(self.negatives): 0}
        for number, text in enumerate(given):
            if not text.strip():
                counts[BLANK] += 1
            elif text.strip() in own:
                counts[REPEATED] += 1
            elif len(negatives) == self.negatives:
                counts[BEYOND.format(self.negatives)] += 1
            else:
                negatives.append(number)
        if self.scored and self.negatives and not negatives:
            counts[WITHOUT] = len(positives)
        if any(counts.values()):
            query = Counted(query, {reason: count for reason, count in counts.items() if count})
        examples: list[list[Line]] = []
        for number, positive in enumerate(positives):
            texts = [given[n] for n in negatives]
            texts += [""] * (self.negatives - len(texts))
            columns: list[Line] = [query if not examples else str(query), positive, *texts]
            if self.scored:
                of_negatives = [scores[len(positives) + n] for n in negatives]
                columns.append(" ".join(map(repr, (scores[number], *of_negatives))))
            examples.append(columns)
        return examples

    def _find_fields(self, record: Mapping[str, Any]) -> list[str]:
        """Returns the names of the fields of query, positives and negatives.

        Negatives that an example cannot have are found too, so that they are counted.
        """
        found = []
        for names in (QUERIES, POSITIVES):
            name = next((name for name in names if name in record), None)
            if name is None:
                raise _missing(record, *names)
            found.append(name)
        negatives = [name for name in record if _NEGATIVE.fullmatch(name)]
        return [*found, *sorted(negatives, key=lambda name: (len(name), name))]

    def _scores(self, record: Mapping[str, Any], positives: int, negatives: int) -> list[float]:
        """Returns the scores of the positives and of the given negatives."""
        of_lists = {"pos_scores": positives, "neg_scores": negatives}
        if any(name in record for name in of_lists):
            values = []
            for name, count in of_lists.items():
                own = _list(record.get(name))
                if len(own) != count:
                    raise _Problem(
                        "wrong number of scores",
                        f": {name} has {len(own)} scores for {count} texts",
                    )
                values += own
        else:
            field = next((name for name in _SCORES if name in record), None)
            if field is None:
                raise _missing(record, "pos_scores", *_SCORES)
            values = _list(record[field])
        try:
            scores = [math.nan if isinstance(value, bool) else float(value) for value in values]
        except (TypeError, ValueError, OverflowError):
            scores = [math.nan]
        if not all(abs(score) <= _LARGEST for score in scores):
            raise _Problem(
                "score that is no number", f" has a score that is no float32 number: {values}"
            )
        if len(scores) != positives + negatives:
            raise _Problem(
                "wrong number of scores",
                f" has {len(scores)} scores for {positives} positives and {negatives} negatives",
            )
        return scores


class _Problem(Exception):
    """A record cannot be read."""

    def __init__(self, reason: str, problem: str):
        super().__init__(problem)
        self.malformed = Malformed(reason, problem)


def _missing(record: Mapping[str, Any], *names: str) -> _Problem:
    fields = ", ".join(map(str, record)) or "none"
    return _Problem("missing field", f" has no field {' or '.join(names)}; its fields are {fields}")


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _texts(record: Mapping[str, Any], field: str, is_list: bool = True) -> list[str]:
    """Returns the texts of a field, which may be a list if `is_list`.

    Raises:
      _Problem: if the field is missing or is no text.
    """
    if field not in record:
        raise _missing(record, field)
    values = _list(record[field]) if is_list else [record[field]]
    for value in values:
        if not isinstance(value, str):
            raise _Problem("field that is no text", f": field {field} is not a text")
        if "\0" in value:
            raise _Problem(NUL.reason, NUL.problem)
        if not json_file.is_text(value):
            raise _Problem(INVALID_UTF8.reason, INVALID_UTF8.problem)
    return values


def of_json(line: Line, reader: Reader) -> list[list[Line]]:
    """Returns the examples of a JSON line."""
    if isinstance(line, Malformed):
        return reader.malformed(line)
    try:
        return reader.examples(json_file.parse(line, "this record"))
    except ConfigError as error:
        return reader.malformed(Malformed("no JSON", f": {error}"))


def table_reader(path: AnyPath, reader: Reader) -> Callable[[Line], list[list[Line]]]:
    """Returns a function that returns the examples of a line of a table with tabs.

    The first line names the columns. A column may be named several times, for example `negative`;
    its texts are then a list.

    Raises:
      ConfigError: if the first line does not name a query and a positive.
    """
    head = first_lines(path)
    header = [name.strip() for name in str(head[0]).removesuffix("\r").split("\t")] if head else []
    named: list[tuple[str, ...]] = [(name,) for name in reader.fields[:2]]
    for names in named or [QUERIES, POSITIVES]:
        if not set(names) & set(header):
            raise ConfigError(
                f"{path}: line 1 must name the columns, separated by tabs, with one of "
                f"{', '.join(names)}; it has {', '.join(map(repr, header)) or 'no columns'}"
            )

    def examples(line: Line) -> list[list[Line]]:
        if isinstance(line, Malformed):
            return reader.malformed(line)
        texts = line.removesuffix("\r").split("\t")
        if texts == header:
            return []
        if len(texts) != len(header):
            problem = f" has {len(texts)} columns; line 1 names {len(header)}"
            return reader.malformed(Malformed("wrong number of columns", problem))
        record: dict[str, Any] = {}
        for name, text in zip(header, texts, strict=True):
            record[name] = [*_list(record[name]), text] if name in record else text
        return reader.examples(record)

    return examples


def read_lines(
    path: AnyPath,
    start: int,
    stop: int,
    examples: Callable[[Line], list[list[Line]]],
) -> Iterator[list[Sequence[Line]]]:
    """Yields the examples of a range of bytes of a file of lines, in blocks.

    Args:
      start, stop: the range; a line belongs to the range in which it begins.
      examples: returns the examples of a line.
    """
    before = 0
    for lines in files.range_blocks(path, start, stop, json_file.RECORD_BYTES):
        block: list[Sequence[Line]] = []
        for number, line in enumerate(lines, before):
            if isinstance(line, Malformed) or (line and not line.isspace()):
                block += at(examples(line), number)
        before += len(lines)
        yield block


def at(examples: list[list[Line]], before: int) -> list[list[Line]]:
    """Returns examples, of which malformed and counted texts have the number of records before
    them."""
    return [[_with_place(text, before) for text in columns] for columns in examples]


def _with_place(text: Line, before: int) -> Line:
    if isinstance(text, Malformed):
        return dataclasses.replace(text, before=before)
    return Counted(text, text.counts, before) if isinstance(text, Counted) else text
