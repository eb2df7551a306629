"""Reads sentences or pairs with labels, from tables (TSV, CSV) or records."""

import csv
import dataclasses
import difflib
import itertools
import math
import re
from collections.abc import Iterator, Sequence

from xlj.config import ConfigError
from xlj.data.labelled import records
from xlj.data.labelled.examples import Sentences
from xlj.io import files, formats, json_file
from xlj.io.json_file import Json
from xlj.io.quoting import quoted, shortened
from xlj.io.storage import AnyPath

UNLABELLED = ("", "-")
"""Texts that mean no label."""

_HEADS = ("label", "labels", "gold_label")  # names of the column of labels

SPELLINGS = {"contradictory": "contradiction"}
"""Labels that XNLI's translated training files spell differently from its dev and test files."""


def read(
    path: AnyPath, columns: Sequence[str], labels: Sequence[str] = (), names: Sequence[str] = ()
) -> list[Sentences]:
    """Reads the examples of a file: JSON lines, JSON or Parquet (`records.are_in`), or a table.

    Columns of a table are divided by tabs, or by commas as in CSV if there is no tab.

    Args:
      columns: one or two columns of text, and the column of the label. Names in the header of a
        table or keys of JSON; with `|` between several names, the first that the file has. Or
        numbers from 1, for a table without a header. Empty: the two or three columns of a table
        without a header.
      labels: the labels of the task, if it names them. A label in `SPELLINGS` is read as one of
        them, and `1.0` as `1`, unless it is a label itself.
      names: names of the labels that files give as numbers, from 0.

    Raises:
      ConfigError: if the file cannot be read, or a line does not fit; with file and line. Without
        `columns`, also if the first column looks like ids or labels, or the last column is empty.
    """
    if len(columns) not in (0, 2, 3):
        raise ConfigError(
            f"task.columns={','.join(columns)}: name one or two columns of text, then the label"
        )
    examples = (_records if records.are_in(path) else _table)(path, columns)
    return [_named_label(example, labels, names) for example in examples]


def _named_label(example: Sentences, labels: Sequence[str], names: Sequence[str]) -> Sentences:
    """Returns the example with its label as the task spells it."""
    label = example.label
    if label is None or label in labels:
        return example
    number = re.fullmatch(r"(-?\d{1,9})(\.0)?", label)  # pandas writes 1.0 if labels are missing
    if number and (names or number[2]):
        label = records.name_of(int(number[1]), names, example.place)
    elif SPELLINGS.get(label) in labels:
        label = SPELLINGS[label]
    return dataclasses.replace(example, label=label)


def _table(path: AnyPath, columns: Sequence[str]) -> Iterator[Sentences]:
    """Yields the examples of a table.

    A field is quoted if it begins and ends with a quotation mark and has only doubled ones between,
    as in XTREME's files. Tabs and line feeds are never part of a field.
    """
    rows = _rows(path, columns)
    guess = None if columns else _Guess(path)
    width, places = 0, list[int | None]()
    if columns and not all(name.isdecimal() for name in columns):
        if any(name.isdecimal() for name in columns):
            raise ConfigError(
                f"task.columns={','.join(columns)}: use names or numbers of columns, not both"
            )
        for _, head in itertools.islice(rows, 1):
            names = _named(columns, head, f"{path}:1", "column")
            width = len(head)
            places = [head.index(name) if name in head else None for name in names]
    for place, fields in rows:
        if not places:
            width, places = len(fields), _numbered(place, columns, fields)
        if len(fields) != width:
            raise ConfigError(f"{place}: {len(fields)} columns, but {width} in the first line")
        if guess:
            guess.add(fields)
        values = [None if at is None else fields[at] for at in places]
        yield _sentences(values[:-1], values[-1], place)
    if guess:
        guess.check()


class _Guess:
    """Checks a table without a header and without `columns`, whose columns could be misread.

    Detects ids or labels instead of sentences.
    """

    def __init__(self, path: AnyPath):
        self._path, self._lines, self._width = path, 0, 0
        self._all_numbers = self._all_names = self._all_empty = True
        self._firsts: set[str] = set()

    def add(self, fields: Sequence[str]) -> None:
        """Adds a line."""
        first = fields[0].strip()
        self._lines, self._width = self._lines + 1, len(fields)
        self._all_numbers &= re.fullmatch(r"[-+]?\d+", first) is not None
        self._all_names &= re.fullmatch(r"[!-~]*\d[!-~]*", first) is not None
        if self._all_names:
            self._firsts.add(first)
        self._all_empty &= not fields[-1].strip()

    def check(self) -> None:
        """Raises a `ConfigError` with advice if the columns may be misread; call it at the end."""
        columns = [*map(str, range(1, self._width + 1))]
        are_ids = self._all_names and self._lines > 2 and len(self._firsts) == self._lines
        if self._lines and (self._all_numbers or are_ids):
            what = "numbers" if self._all_numbers else "ids"
            without = ",".join(columns[1:] if len(columns) > 2 else columns[::-1])
            raise ConfigError(
                f"{self._path}:1: the first column contains only {what}, no sentences; number the "
                f"columns of the texts, then the label: task.columns={without}, or "
                f"task.columns={','.join(columns)} if they are sentences"
            )
        if self._lines and self._all_empty and self._width == 3:
            raise ConfigError(
                f"{self._path}:1: the last column is empty in all lines; set task.columns=1,2 if "
                "the second column is the label, or task.columns=1,2,3 if it is a sentence"
            )


def _numbered(place: str, columns: Sequence[str], fields: Sequence[str]) -> list[int | None]:
    """Returns the indices of the columns in a table without a header, by its first line.

    If the table ends just before the column of labels, it has none.
    """
    width = len(fields)
    if not columns and width not in (2, 3):
        raise ConfigError(
            f"{place}: {width} columns, but without task.columns a line must be one or two texts "
            "and a label; set task.columns to their names or numbers, texts first: "
            f"{shortened(', '.join(map(quoted, fields)))}"
        )
    numbers = [int(name) for name in columns] or list(range(1, width + 1))
    *texts, label = numbers
    if not min(numbers) or max(texts) > width or label > width + 1:
        raise ConfigError(
            f"{place}: {width} columns, but task.columns={','.join(columns)} (counted from 1)"
        )
    if label <= width and fields[label - 1].strip().casefold() in _HEADS:
        raise ConfigError(
            f"{place}: this is the header of the table, so name its columns: "
            f"task.columns={','.join(fields)}"
        )
    return [number - 1 if number <= width else None for number in numbers]


def _named(columns: Sequence[str], names: Sequence[str], place: str, kind: str) -> list[str]:
    """Returns the name of each column in this file: the first of `premise|sentence1` that exists.

    The column of labels may be missing, unless a similar name suggests a typo.
    """
    alternatives = [column.split("|") for column in columns]
    chosen = [next((name for name in some if name in names), some[0]) for some in alternatives]
    *texts, label = chosen
    labelled = label in names or difflib.get_close_matches(label, names, n=1)
    for name in chosen if labelled else texts:
        if name not in names:
            raise ConfigError(
                f"{place}: no {kind} {quoted(name)}, which task.columns names; the file has "
                f"{shortened(', '.join(names))}"
            )
        if names.count(name) > 1:
            raise ConfigError(f"{place}: the header has two columns {quoted(name)}")
    return chosen


def _records(path: AnyPath, columns: Sequence[str]) -> Iterator[Sentences]:
    for row, place in records.read(path):
        if not columns:
            raise ConfigError(
                f"{place}: set task.columns to the keys of the texts and the label; the keys are "
                f"{shortened(', '.join(row))}"
            )
        *texts, label = _named(columns, list(row), place, "key")
        yield _sentences(
            [_string(row[name], name, place) for name in texts],
            _label(row.get(label), label, place),
            place,
        )


def _string(value: Json, name: str, place: str) -> str:
    if not isinstance(value, str) or not json_file.is_text(value):
        raise ConfigError(f"{place}: {name} is {quoted(value)}, expected a text")
    return value


def _label(value: Json, name: str, place: str) -> str | None:
    if value is None:
        return None
    if isinstance(value, float):
        return None if math.isnan(value) else str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ConfigError(f"{place}: {name} is {quoted(value)}, expected a text or a whole number")
    return _string(value, name, place)


def _sentences(texts: Sequence[str | None], label: str | None, place: str) -> Sentences:
    if not any(text and not text.isspace() for text in texts):
        raise ConfigError(f"{place}: the text is empty")
    label = None if label is None or label.strip() in UNLABELLED else label.strip()
    return Sentences(tuple(text or "" for text in texts), label, place)


def _rows(path: AnyPath, columns: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields (place, fields) of each line of a table, or of each record of CSV.

    Fields of CSV may contain line feeds.
    """
    formats.refuse(path, files.head(path), ("CSV", "|||"))
    lines: Iterator[str] = (line.removesuffix("\r") for line in files.lines(path))
    head = next(lines, None)
    if head is None:
        return
    lines = itertools.chain([head], lines)
    divider = _divider(path, head, columns)
    if divider == "\t":
        for number, line in enumerate(lines, 1):
            if not line.strip():
                raise ConfigError(f"{path}:{number}: the line is empty")
            yield f"{path}:{number}", [_unquoted(field) for field in line.split("\t")]
        return
    reader, number = csv.reader((f"{line}\n" for line in lines), delimiter=divider, strict=True), 0
    try:
        for fields in reader:
            place, number = f"{path}:{number + 1}", reader.line_num
            if not fields:
                raise ConfigError(f"{place}: the line is empty")
            yield place, fields
    except csv.Error as error:
        raise ConfigError(f"{path}:{number + 1}: not valid CSV ({error})") from None


def _divider(path: AnyPath, head: str, columns: Sequence[str]) -> str:
    """Returns the divider of columns, from the first line of a table.

    A comma or a semicolon if all named columns are between them, or if the file is named CSV and
    has no tab in this line; else a tab.
    """
    texts = [] if all(name.isdecimal() for name in columns) else columns[:-1]
    widths = {"\t": 1}
    for divider in ",;":
        try:
            fields = next(csv.reader([head], delimiter=divider))
        except csv.Error:  # a carriage return within the line, or a field of 128 KiB
            continue
        named = [any(name in fields for name in column.split("|")) for column in texts]
        if texts and all(named):
            return divider
        widths[divider] = len(fields)
    form = formats.detect(path)
    is_csv = form is not None and form.name == "CSV" and "\t" not in head
    return max(widths, key=widths.__getitem__) if is_csv else "\t"


def _unquoted(field: str) -> str:
    if len(field) > 1 and field[0] == field[-1] == '"' and '"' not in field[1:-1].replace('""', ""):
        return field[1:-1].replace('""', '"')
    return field
