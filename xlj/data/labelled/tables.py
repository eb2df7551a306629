"""Reads sentences or pairs with labels, from tables (TSV, CSV) or records."""

import csv
import dataclasses
import difflib
import itertools
import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence

from xlj.config import ConfigError
from xlj.data.labelled import records
from xlj.data.labelled.examples import Sentences
from xlj.io import files, formats, json_file
from xlj.io.json_file import Json
from xlj.io.quoting import quoted, shortened
from xlj.io.storage import AnyPath

UNLABELLED = ("", "-")
"""Texts in the column of labels that mean that the example is unlabelled."""

SPELLINGS = {"contradictory": "contradiction"}
"""Labels of XNLI's translated training files, and their spelling in XNLI's dev and test files."""


def read(
    path: AnyPath,
    columns: Sequence[str],
    labels: Sequence[str] = (),
    names: Sequence[str] = (),
    label_keys: Sequence[str] = records.LABEL_KEYS,
) -> list[Sentences]:
    """Reads the examples of a file: records (JSON lines, JSON or Parquet), or a table.

    The columns of a table are divided by tabs, or by commas or semicolons as in CSV. The language
    of an example is its value under a key of `records.LANGUAGE_KEYS`.

    Args:
      path: the file.
      columns: one or two columns of text, then the column of the label. Each is a name in the
        header of the table or a key of the records. `A|B` means A, or B if the file has no A. For
        a table without a header, each is a one-based number. If `columns` is empty, they are the
        usual names of texts and labels that the header or the first record has
        (`records.FIRST_TEXT_KEYS`). A table without a header must then have two or three columns;
        the last column is the label.
      labels: the labels of the task; empty if the config does not list them. A label of the file
        that is not one of `labels` is corrected: by `SPELLINGS`, or from `1.0` to `1`.
      names: names of the labels that files give as zero-based numbers.
      label_keys: usual names of the label.

    Raises:
      ConfigError: if the file cannot be read, or a line is invalid; the message names the file and
        the line. If `columns` is empty, also if the names are ambiguous, or if a table without a
        header seems to have ids, numbers or labels in its first column, or an empty last column.
    """
    if len(columns) not in (0, 2, 3):
        raise ConfigError(
            f"task.columns={','.join(columns)}: name one or two columns of text, then the column "
            "of the label"
        )
    reader = _read_records if records.has_records(path) else _read_table
    examples = reader(path, columns, label_keys)
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


def _read_table(
    path: AnyPath, columns: Sequence[str], label_keys: Sequence[str]
) -> Iterator[Sentences]:
    """Yields the examples of a table.

    In a table with tabs, a field is quoted if it begins and ends with a quotation mark and all
    other quotation marks in it are doubled, as in XTREME's files. Tabs and line feeds are then
    never part of a field.
    """
    rows = _read_rows(path, columns)
    first = next(rows, None)
    if first is None:
        return
    place, header = first
    if not columns and _has_label(header, label_keys) and max(map(len, header)) < 40:
        columns = records.choose_columns(header, label_keys, place, "column")
    guess = None if columns else _ColumnGuess(path)
    others = list[tuple[str, int]]()  # columns that may name the language
    if columns and not all(name.isdecimal() for name in columns):
        if any(name.isdecimal() for name in columns):
            raise ConfigError(
                f"task.columns={','.join(columns)}: use only names or only numbers of columns"
            )
        names = _name_columns(columns, header, place, "column")
        indices = [header.index(name) if name in header else None for name in names]
        keys = {*records.LANGUAGE_KEYS, "id"} - {*names}
        others = [(name, index) for index, name in enumerate(header) if name in keys]
    else:
        indices = _number_columns(place, columns, header)
        rows = itertools.chain([first], rows)
    widths = _Widths(header, indices, bool(columns))
    for place, fields in rows:
        widths.check(place, fields)
        if guess:
            guess.add(fields)
        values = [None if index is None else fields[index] for index in indices]
        language = records.stated_language({name: fields[index] for name, index in others})
        yield _to_sentences(values[:-1], values[-1], place, language)
    widths.report(path)
    if guess:
        guess.check()


def _is_label_header(field: str) -> bool:
    return field.strip().casefold() in ("label", "labels", "gold_label")


def read_named(path: AnyPath) -> Iterator[tuple[dict[str, str], str]]:
    """Yields the lines of a table as records, with the names of its header, and their places.

    Raises:
      ConfigError: if the file cannot be read, or a line has another number of columns.
    """
    rows = _read_rows(path, ())
    _, header = next(rows, ("", []))
    for place, fields in rows:
        if len(fields) != len(header):
            raise ConfigError(f"{place}: {len(fields)} columns, but {len(header)} in the header")
        yield dict(zip(header, fields, strict=True)), place


def _has_label(names: Iterable[str], label_keys: Sequence[str]) -> bool:
    """Whether one of the fields of a line is a usual name of the column of labels."""
    known = {key.casefold() for key in label_keys}
    return any(name.strip().casefold() in known for name in names)


class _Widths:
    """Checks the number of columns of each line, and counts lines with more than the first line.

    Such lines are errors unless `task.columns` is set: their further columns are then ignored, as
    in the files of the STS benchmark, some lines of which end with two sources.
    """

    def __init__(self, first: Sequence[str], indices: Sequence[int | None], are_set: bool):
        self._width, self._are_set = len(first), are_set
        needs_all = not are_set or None in indices  # a label in further lines would be lost
        self._least = self._width if needs_all else 1 + max(k for k in indices if k is not None)
        self._most = self._width if needs_all else sys.maxsize
        self._wider = list[str]()

    def check(self, place: str, fields: Sequence[str]) -> None:
        """Raises a `ConfigError` if a line has too few columns, or too many."""
        if not self._least <= len(fields) <= self._most:
            least = f"at least {self._least} are needed" if self._are_set else ""
            raise ConfigError(
                f"{place}: {len(fields)} columns, but {self._width} in the first line"
                + f"; {least}" * bool(least)
            )
        self._wider += [place] * (len(fields) > self._width)

    def report(self, path: AnyPath) -> None:
        """Prints how many lines had more columns than the first line."""
        if self._wider:
            print(
                f"warning: {path}: {len(self._wider):,} lines have more columns than the first "
                f"line, which has {self._width} (first: {self._wider[0]}); the further columns "
                "are not read. Check that no text contains a tab",
                file=sys.stderr,
            )


class _ColumnGuess:
    """Detects errors in guessed columns: ids or labels instead of sentences.

    The columns are guessed if `task.columns` is empty and the table has no header.
    """

    def __init__(self, path: AnyPath):
        self._path, self._lines, self._width = path, 0, 0
        self._all_numbers = self._all_names = self._all_empty = True
        self._values: tuple[set[str], set[str]] = (set(), set())  # of the first and last column

    def add(self, fields: Sequence[str]) -> None:
        """Adds the fields of a line."""
        first = fields[0].strip()
        self._lines, self._width = self._lines + 1, len(fields)
        self._all_numbers &= re.fullmatch(r"[-+]?\d+([.,]\d+)?", first) is not None
        self._all_names &= re.fullmatch(r"[!-~]*\d[!-~]*", first) is not None
        self._all_empty &= not fields[-1].strip()
        for values, field in zip(self._values, (first, fields[-1].strip()), strict=True):
            values.add(field)

    def check(self) -> None:
        """Checks the columns; call this method after the last line.

        Raises:
          ConfigError: if the guess may be wrong; the message proposes values of `task.columns`.
        """
        columns = [*map(str, range(1, self._width + 1))]
        first, last = map(len, self._values)
        are_ids = self._all_names and self._lines > 2 and first == self._lines
        if self._lines and (self._all_numbers or are_ids):
            content = "numbers" if self._all_numbers else "ids"
            # Ids are whole numbers or names, and differ in all lines; scores and labels do not.
            are_ids = first == self._lines > 1 and not any("." in x for x in self._values[0])
            first_is_label = not are_ids or len(columns) == 2
            without_first = ",".join([*columns[1:], *"1" * first_is_label])
            raise ConfigError(
                f"{self._path}:1: the first column contains only {content}, no sentences; set "
                f"task.columns to the numbers of the columns of text, then of the label: "
                f"task.columns={without_first}, or task.columns={','.join(columns)} if the first "
                "column contains sentences"
            )
        if 2 * first <= self._lines == last and any(" " in text for text in self._values[1]):
            raise ConfigError(
                f"{self._path}:1: the first column seems to have the labels: it has {first} "
                f"different values in {self._lines:,} lines, and the last column has a different "
                f"text in each line; set task.columns={','.join([*columns[1:], '1'])}, or "
                f"task.columns={','.join(columns)} if the last column is the label"
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
    if records.is_header(fields) or (label <= width and _is_label_header(fields[label - 1])):
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


def _read_records(
    path: AnyPath, columns: Sequence[str], label_keys: Sequence[str]
) -> Iterator[Sentences]:
    for row, place in records.read(path):
        columns = columns or records.choose_columns(list(row), label_keys, place, "key")
        *texts, label = _name_columns(columns, list(row), place, "key")
        yield _to_sentences(
            [_check_text(row[name], name, place) for name in texts],
            _to_label(row.get(label), label, place),
            place,
            records.stated_language(row, (*texts, label)),
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


def _to_sentences(
    texts: Sequence[str | None], label: str | None, place: str, language: str
) -> Sentences:
    if not any(text and not text.isspace() for text in texts):
        raise ConfigError(f"{place}: the text is empty")
    label = None if label is None or label.strip() in UNLABELLED else label.strip()
    return Sentences(tuple(text or "" for text in texts), label, place, language=language)


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
                raise ConfigError(f"{path}:{number}: the line is empty; remove it")
            yield f"{path}:{number}", [_unquote(field) for field in line.split("\t")]
        return
    reader, number = csv.reader((f"{line}\n" for line in lines), delimiter=divider, strict=True), 0
    try:
        for fields in reader:
            place, number = f"{path}:{number + 1}", reader.line_num
            if not fields:
                raise ConfigError(f"{place}: the line is empty; remove it")
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
