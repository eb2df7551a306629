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
"""Texts in the column of labels that mean that the example is unlabelled."""

_LABEL_HEADERS = ("label", "labels", "gold_label")  # usual names of the column of labels

SPELLINGS = {"contradictory": "contradiction"}
"""Labels of XNLI's translated training files, and their spelling in XNLI's dev and test files."""


def read(
    path: AnyPath, columns: Sequence[str], labels: Sequence[str] = (), names: Sequence[str] = ()
) -> list[Sentences]:
    """Reads the examples of a file: records (JSON lines, JSON or Parquet), or a table.

    The columns of a table are divided by tabs, or by commas or semicolons as in CSV.

    Args:
      path: the file.
      columns: one or two columns of text, then the column of the label. Each is a name in the
        header of the table or a key of the records. `A|B` means A, or B if the file has no A. For
        a table without a header, each is a one-based number. If `columns` is empty, the file must
        be a table of two or three columns without a header; the last column is the label.
      labels: the labels of the task; empty if the config does not list them. A label of the file
        that is not one of `labels` is corrected: by `SPELLINGS`, or from `1.0` to `1`.
      names: names of the labels that files give as zero-based numbers.

    Raises:
      ConfigError: if the file cannot be read, or a line is invalid; the message names the file and
        the line. If `columns` is empty, also if the first column contains only ids or numbers, or
        if the last column is empty.
    """
    if len(columns) not in (0, 2, 3):
        raise ConfigError(
            f"task.columns={','.join(columns)}: name one or two columns of text, then the column "
            "of the label"
        )
    examples = (_read_records if records.has_records(path) else _read_table)(path, columns)
    return [_with_task_label(example, labels, names) for example in examples]


def _with_task_label(example: Sentences, labels: Sequence[str], names: Sequence[str]) -> Sentences:
    """Returns the example with its label in the spelling of the task."""
    label = example.label
    if label is None or label in labels:
        return example
    number = re.fullmatch(r"(-?\d{1,9})(\.0)?", label)  # pandas writes 1.0 if labels are missing
    if number and (names or number[2]):
        label = records.class_name(int(number[1]), names, example.place)
    elif SPELLINGS.get(label) in labels:
        label = SPELLINGS[label]
    return dataclasses.replace(example, label=label)


def _read_table(path: AnyPath, columns: Sequence[str]) -> Iterator[Sentences]:
    """Yields the examples of a table.

    In a table with tabs, a field is quoted if it begins and ends with a quotation mark and all
    other quotation marks in it are doubled, as in XTREME's files. Tabs and line feeds are then
    never part of a field.
    """
    rows = _read_rows(path, columns)
    guess = None if columns else _ColumnGuess(path)
    width, indices = 0, list[int | None]()
    if columns and not all(name.isdecimal() for name in columns):
        if any(name.isdecimal() for name in columns):
            raise ConfigError(
                f"task.columns={','.join(columns)}: use only names or only numbers of columns"
            )
        for _, header in itertools.islice(rows, 1):
            names = _name_columns(columns, header, f"{path}:1", "column")
            width = len(header)
            indices = [header.index(name) if name in header else None for name in names]
    for place, fields in rows:
        if not indices:
            width, indices = len(fields), _number_columns(place, columns, fields)
        if len(fields) != width:
            raise ConfigError(f"{place}: {len(fields)} columns, but {width} in the first line")
        if guess:
            guess.add(fields)
        values = [None if index is None else fields[index] for index in indices]
        yield _to_sentences(values[:-1], values[-1], place)
    if guess:
        guess.check()


class _ColumnGuess:
    """Detects errors in guessed columns: ids or labels instead of sentences.

    The columns are guessed if `task.columns` is empty and the table has no header.
    """

    def __init__(self, path: AnyPath):
        self._path, self._lines, self._width = path, 0, 0
        self._all_numbers = self._all_names = self._all_empty = True
        self._first_fields: set[str] = set()

    def add(self, fields: Sequence[str]) -> None:
        """Adds the fields of a line."""
        first = fields[0].strip()
        self._lines, self._width = self._lines + 1, len(fields)
        self._all_numbers &= re.fullmatch(r"[-+]?\d+", first) is not None
        self._all_names &= re.fullmatch(r"[!-~]*\d[!-~]*", first) is not None
        if self._all_names:
            self._first_fields.add(first)
        self._all_empty &= not fields[-1].strip()

    def check(self) -> None:
        """Checks the columns; call this method after the last line.

        Raises:
          ConfigError: if the guess may be wrong; the message proposes values of `task.columns`.
        """
        columns = [*map(str, range(1, self._width + 1))]
        are_ids = self._all_names and self._lines > 2 and len(self._first_fields) == self._lines
        if self._lines and (self._all_numbers or are_ids):
            content = "numbers" if self._all_numbers else "ids"
            without_first = ",".join(columns[1:] if len(columns) > 2 else columns[::-1])
            raise ConfigError(
                f"{self._path}:1: the first column contains only {content}, no sentences; set "
                f"task.columns to the numbers of the columns of text, then of the label: "
                f"task.columns={without_first}, or task.columns={','.join(columns)} if the first "
                "column contains sentences"
            )
        if self._lines and self._all_empty and self._width == 3:
            raise ConfigError(
                f"{self._path}:1: the last column is empty in all lines; set task.columns=1,2 if "
                "the second column is the label, or task.columns=1,2,3 if the second column is a "
                "sentence"
            )


def _number_columns(place: str, columns: Sequence[str], fields: Sequence[str]) -> list[int | None]:
    """Returns the zero-based indices of the columns in a table without a header.

    The column of labels may be the one after the last column of the table. Its index is then None,
    which means that the examples are unlabelled.

    Args:
      place: the place of the first line, for errors.
      columns: one-based numbers of columns, or empty.
      fields: the fields of the first line.
    """
    width = len(fields)
    if not columns and width not in (2, 3):
        raise ConfigError(
            f"{place}: {width} columns, but without task.columns a line must be one or two texts "
            "and a label; set task.columns to the names or numbers of the columns, texts first: "
            f"{shortened(', '.join(map(quoted, fields)))}"
        )
    numbers = [int(name) for name in columns] or list(range(1, width + 1))
    *texts, label = numbers
    if not min(numbers) or max(texts) > width or label > width + 1:
        raise ConfigError(
            f"{place}: {width} columns, but task.columns={','.join(columns)}; columns have the "
            f"numbers 1 to {width}"
        )
    if label <= width and fields[label - 1].strip().casefold() in _LABEL_HEADERS:
        raise ConfigError(
            f"{place}: this line is the header of the table; set task.columns to names of its "
            f"columns: task.columns={','.join(fields)}"
        )
    return [number - 1 if number <= width else None for number in numbers]


def _name_columns(columns: Sequence[str], names: Sequence[str], place: str, kind: str) -> list[str]:
    """Returns the names in a file of the columns of the task.

    For a column such as `premise|sentence1`, this is the first of the names that the file has. The
    column of labels may be missing, unless the file has a column of a similar name, which
    suggests a typo.

    Args:
      columns: the columns of the task, with `|` between alternative names.
      names: the names of the columns of the file.
      place: the place of the names, for errors.
      kind: `column` or `key`, for errors.
    """
    alternatives = [column.split("|") for column in columns]
    chosen = [
        next((name for name in options if name in names), options[0]) for options in alternatives
    ]
    *texts, label = chosen
    needs_label = label in names or difflib.get_close_matches(label, names, n=1)
    for name in chosen if needs_label else texts:
        if name not in names:
            raise ConfigError(
                f"{place}: no {kind} {quoted(name)}, which task.columns names; the file has "
                f"{shortened(', '.join(names))}"
            )
        if names.count(name) > 1:
            raise ConfigError(
                f"{place}: the header has two columns {quoted(name)}; rename one of them"
            )
    return chosen


def _read_records(path: AnyPath, columns: Sequence[str]) -> Iterator[Sentences]:
    for row, place in records.read(path):
        if not columns:
            raise ConfigError(
                f"{place}: set task.columns to the keys of the texts and the label; this record "
                f"has the keys {shortened(', '.join(row))}"
            )
        *texts, label = _name_columns(columns, list(row), place, "key")
        yield _to_sentences(
            [_check_text(row[name], name, place) for name in texts],
            _to_label(row.get(label), label, place),
            place,
        )


def _check_text(value: Json, name: str, place: str) -> str:
    if not isinstance(value, str) or not json_file.is_text(value):
        raise ConfigError(f"{place}: {name} is {quoted(value)}, expected a text")
    return value


def _to_label(value: Json, name: str, place: str) -> str | None:
    if value is None:
        return None
    if isinstance(value, float):
        return None if math.isnan(value) else str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ConfigError(f"{place}: {name} is {quoted(value)}, expected a text or a whole number")
    return _check_text(value, name, place)


def _to_sentences(texts: Sequence[str | None], label: str | None, place: str) -> Sentences:
    if not any(text and not text.isspace() for text in texts):
        raise ConfigError(f"{place}: the text is empty")
    label = None if label is None or label.strip() in UNLABELLED else label.strip()
    return Sentences(tuple(text or "" for text in texts), label, place)


def _read_rows(path: AnyPath, columns: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields (place, fields) of each line of a table with tabs, or of each record of a CSV file.

    Quoted fields of CSV may contain line feeds.
    """
    formats.refuse(path, files.head(path), ("CSV", "|||"))
    lines: Iterator[str] = (line.removesuffix("\r") for line in files.lines(path))
    first_line = next(lines, None)
    if first_line is None:
        return
    lines = itertools.chain([first_line], lines)
    divider = _choose_divider(path, first_line, columns)
    if divider == "\t":
        for number, line in enumerate(lines, 1):
            if not line.strip():
                raise ConfigError(f"{path}:{number}: the line is empty")
            yield f"{path}:{number}", [_unquote(field) for field in line.split("\t")]
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


def _choose_divider(path: AnyPath, first_line: str, columns: Sequence[str]) -> str:
    """Returns the divider of columns of a table.

    The first rule that applies determines the divider:

    1. If a comma or a semicolon splits the first line into fields that include the names of all
       columns of text, this character is the divider.
    2. If the name of the file ends in .csv and the first line has no tab, the divider is a comma or
       a semicolon: the one that gives more columns.
    3. The divider is a tab.
    """
    texts = [] if all(name.isdecimal() for name in columns) else columns[:-1]
    widths = {"\t": 1}
    for divider in ",;":
        try:
            fields = next(csv.reader([first_line], delimiter=divider))
        except csv.Error:  # a carriage return within the line, or a field of 128 KiB
            continue
        has_names = [any(name in fields for name in column.split("|")) for column in texts]
        if texts and all(has_names):
            return divider
        widths[divider] = len(fields)
    file_format = formats.detect(path)
    is_csv = file_format is not None and file_format.name == "CSV" and "\t" not in first_line
    return max(widths, key=widths.__getitem__) if is_csv else "\t"


def _unquote(field: str) -> str:
    if len(field) > 1 and field[0] == field[-1] == '"' and '"' not in field[1:-1].replace('""', ""):
        return field[1:-1].replace('""', '"')
    return field


def parse_score(label: str | None, place: str) -> float | None:
    """Converts a label to a number; None for an unlabelled example.

    Raises:
      ConfigError: if the label is not a number between -1e30 and 1e30.
    """
    if label is None:
        return None
    try:
        score = float(label)
    except ValueError:
        score = math.nan
    if not math.isfinite(score) or abs(score) > 1e30:
        raise ConfigError(
            f"{place}: the score is {quoted(label)}; expected a number between -1e30 and 1e30"
        )
    return score
