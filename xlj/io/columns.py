"""Columns of lines: splits lines, and finds the columns that contain sentences.

A column of numbers, ids, URLs, language codes or labels is not taken for sentences, unless the user
names the column.
"""

import functools
import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.config.languages import CODE, is_known
from xlj.io import files, formats
from xlj.io.malformed import Line, Malformed, Skipping
from xlj.io.quoting import quoted, shortened
from xlj.io.storage import AnyPath

HEAD_LINES = 100
"""How many lines at the beginning of a file show what its columns contain."""
RANGE = "<range>"
"""In eBible's files, the line of a verse whose text is a part of the line before."""

_TEXT = "text"
_MISSING = ("", "\\N", "nan", "NaN", "NA", "null", "None", "inf", "-inf")
_EXPONENT = re.compile(r"[-+]?[\d.,]+[eE][-+]?\d+")
_URL = re.compile(r"\w+://\S+")
_ID = re.compile(r"[!-~]*\d[!-~]*|[\w ]+ \d+:\d+")  # or a verse such as GEN 1:1
_LABEL = re.compile(r"[\w:/.-]*\w", re.ASCII)  # not a word with a full stop, as in dialogues
_NAME = re.compile(r"[\w.-]+( [\w.-]+)?")
_SIDES = ("src", "tgt", "source", "target", "sentence1", "sentence2", "text1", "text2")
"""Usual names of the columns of pairs in headers; other names are language codes."""


def split(line: str) -> list[str]:
    """Splits a line into columns at tabs; a line without a tab is split at `|||`.

    fast_align and awesome-align read pairs of sentences that are separated by `|||`.
    """
    return line.split("\t") if "\t" in line else re.split(r"(?:^| +)\|\|\|(?: +|$)", line)


def split_at_tabs(line: str) -> list[str]:
    """Splits a line into columns at tabs only."""
    return line.split("\t")


class Layout(NamedTuple):
    """Where the texts of the lines of a file are.

    Attributes:
      indices: the indices of the columns with the texts; empty if a line is one text.
      width: the number of columns of each line; 0 if further columns are allowed.
      has_header: whether the first line of the file is a header.
    """

    indices: tuple[int, ...] = ()
    width: int = 0
    has_header: bool = False

    def texts(self, columns: list[str]) -> list[str] | None:
        """Returns the texts of a line, given its columns; None if it has a wrong number of them."""
        if len(columns) != self.width if self.width else len(columns) <= max(self.indices):
            return None
        return [columns[index] for index in self.indices]

    def text(self, line: Line) -> Line:
        """Returns the text of a line: its last column of `indices`; a blank line has no text."""
        if not self.indices or isinstance(line, Malformed) or not line.strip():
            return line
        if texts := self.texts(line.removesuffix("\r").split("\t")):
            return texts[-1]
        expected = f"{self.width} columns" if self.width else f"column {max(self.indices) + 1}"
        problem = f" has {line.count(chr(9)) + 1} columns; expected {expected}, separated by tabs"
        return Malformed("wrong number of columns", problem)


WHOLE_LINES = Layout()
"""The layout of lines that are one text each."""


class Choice(NamedTuple):
    """How users choose the columns of a file.

    Attributes:
      names: the columns that they chose: numbers from 1, or names in the first line. Empty if they
        chose none.
      prefix, separator: the text before and between the columns, such as `--columns=` and `,`.
    """

    names: Sequence[str] = ()
    prefix: str = "--columns="
    separator: str = ","

    @property
    def are_numbers(self) -> bool:
        """Whether all names are numbers of columns."""
        return all(name.isdecimal() and 0 < int(name) < 10_000 for name in self.names)

    def __str__(self) -> str:
        return self.prefix + self.separator.join(self.names)

    def of(self, indices: Iterable[int]) -> "Choice":
        """Returns the choice of some columns."""
        return self._replace(names=[str(index + 1) for index in indices])

    def layout(
        self, head: Sequence[str], place: object, split: Callable[[str], list[str]] = split
    ) -> Layout:
        """Returns the layout that the names choose.

        Args:
          head: the first lines of the file.
          place: the file, for errors.

        Raises:
          ConfigError: if a name is not in the first line.
        """
        if self.are_numbers:
            return Layout(tuple(int(name) - 1 for name in self.names))
        header = split(head[0].removesuffix("\r")) if head else []
        for name in self.names:
            if name not in header:
                raise ConfigError(
                    f"{place}:1: {self} names {quoted(name)}, but the columns are "
                    f"{shortened(', '.join(header))}"
                )
        return Layout(tuple(map(header.index, self.names)), has_header=True)


class _Table(NamedTuple):
    """The rows at the beginning of a file that have the most frequent number of columns."""

    rows: list[list[str]]
    kinds: list[str]
    has_header: bool

    @property
    def texts(self) -> list[int]:
        return [index for index, kind in enumerate(self.kinds) if kind == _TEXT]

    @property
    def ids(self) -> list[int]:
        """The columns that identify their lines."""
        columns = [[row[index].strip() for row in self.rows] for index in range(len(self.kinds))]
        columns = [column[self.has_header :] for column in columns]
        return [
            index
            for index, column in enumerate(columns)
            if self.kinds[index] == "ids" or all(map(str.isdecimal, column))
            if len(set(column)) == len(column)
        ]

    @property
    def header_note(self) -> str:
        return ", without the names of columns in line 1" if self.has_header else ""

    @property
    def may_have_header(self) -> bool:
        """Whether the first row has one word in each column, and all other rows have several."""
        words = [{" " in cell.strip() for cell in row} for row in self.rows]
        return len(words) > 2 and words[0] == {False} and words[1:] == [{True}] * (len(words) - 1)

    def has_spaces(self, index: int) -> bool:
        return any(" " in row[index].strip() for row in self.rows)

    def __str__(self) -> str:
        columns = enumerate(zip(self.kinds, self.rows[-1], strict=True), 1)
        shown = [f"{number} {kind} ({_beginning(cell)})" for number, (kind, cell) in columns]
        return f"its columns are {', '.join(shown)}"


def first_lines(path: AnyPath) -> list[str]:
    """Returns the first lines of a file, without malformed lines; none of a stream.

    Raises:
      ConfigError: if the file cannot be read (see `files.blocks`).
    """
    if files.is_stream(path):
        return []
    head = itertools.islice(itertools.chain.from_iterable(files.blocks(path)), HEAD_LINES)
    return [line for line in head if isinstance(line, str)]


def find_sentences(
    head: Sequence[str],
    place: object,
    choice: Choice,
    is_automatic: bool = True,
    with_ids: bool = False,
) -> Layout:
    """Finds the column of the sentences in a file with one sentence per line.

    Args:
      head: the first lines of the file (`first_lines`).
      place: the file, for messages.
      choice: the column that the user chose, if any.
      is_automatic: whether the only column of text is chosen, with a message on standard error;
        otherwise such a file is an error too.
      with_ids: whether the layout also has the column of the ids of sentences, if there is one.

    Raises:
      ConfigError: if the lines have several columns, and it is not clear which has the sentences.
        The message shows the columns, and how to choose.
    """
    if choice.names:
        return choice.layout(head, place, split_at_tabs)
    table = _table(head, split_at_tabs)
    ids = table.ids[:1] if with_ids else []
    if with_ids and table.kinds == [_TEXT] * 2 and not table.has_spaces(0):
        table.kinds[0], ids = "ids", [0]
    if set(table.kinds) <= {_TEXT}:
        if len(table.kinds) > 1 and is_automatic:
            _note(
                f"warning: {place}: {table}; a line is one sentence unless you set {choice.of([0])}"
            )
        return WHOLE_LINES
    if len(table.kinds) == 1:
        _note(f"warning: {place}: {table}, not sentences")
        return WHOLE_LINES
    if len(table.texts) == 1 and is_automatic:
        chosen = (*ids, *table.texts)
        _note(f"{place}: {table}; reading {choice.of(chosen)}{table.header_note}")
        return Layout(chosen, len(table.kinds), table.has_header)
    advice = choice.of(table.texts[:1] or [0])
    raise ConfigError(
        f"{place}: expected one sentence per line, but {table}; choose the column of the "
        f"sentences, such as {advice}"
    )


def open_lines(
    path: AnyPath,
    columns: Sequence[str] = (),
    skipping: Skipping | None = None,
    layout: Layout | None = None,
    with_ids: bool = False,
) -> tuple[Layout, Iterator[str]]:
    """Opens a file with one sentence per line.

    Args:
      path: the file, or a stream.
      columns: the column of the sentences, a number from 1 or a name in the first line. With
        `with_ids`, it may be preceded by the column of the ids. If empty,
        `find_sentences` finds the columns, and prints them.
      skipping: the policy for malformed lines; None raises an error.
      layout: the layout, if the file was opened before.
      with_ids: whether the layout may have a column of ids.

    Returns:
      The layout, and an iterator over the texts of all lines without a header. The iterator yields
      the whole lines if the layout has two columns.

    Raises:
      ConfigError: if the file cannot be read or has another format, or it is unclear which column
        has the sentences. The iterator raises it on a malformed line.
    """
    formats.refuse(path, files.head(path))
    if len(columns) > 1 + with_ids:
        expected = "`ID,SENTENCE` or `SENTENCE`" if with_ids else "one column"
        raise ConfigError(f"--columns={','.join(columns)}: expected {expected}")
    content: Iterator[Line] = itertools.chain.from_iterable(files.blocks(path))
    head = list(itertools.islice(content, HEAD_LINES))
    if layout is None:
        text_of_head = [line for line in head if isinstance(line, str)]
        layout = find_sentences(text_of_head, path, Choice(columns), with_ids=with_ids)
    content = itertools.islice(itertools.chain(head, content), int(layout.has_header), None)
    texts = content if len(layout.indices) > 1 else map(layout.text, content)
    return layout, (skipping or Skipping()).lines(texts, f"{path}:", 1 + layout.has_header)


def find_pairs(
    head: Sequence[str], place: object, choice: Choice, count: int = 2, is_exact: bool = False
) -> Layout:
    """Finds the columns of the two sentences in a file with one pair per line.

    These are the first two columns, and with `count` 3 the third for gold links. Further columns
    are allowed.

    Args:
      head, place, choice: see `find_sentences`.
      count: the number of columns to read.
      is_exact: whether further columns are an error.

    Raises:
      ConfigError: if one of the first two columns does not contain text, or on further columns.
        The message shows the columns, and how to choose.
    """
    if choice.names:
        return choice.layout(head, place)
    table = _table(head, split)
    is_wide = is_exact and len(table.kinds) > count
    if len(table.kinds) > 1 and (is_wide or not {0, 1} <= set(table.texts)):
        names: Sequence[str] = ("SOURCE", "TARGET", "GOLD")[:count]
        if len(table.texts) == count == 2:
            names = choice.of(table.texts).names
        raise ConfigError(
            f"{place}: expected two columns with sentences, but {table}; choose the columns of the "
            f"sentences with {choice._replace(names=names)}"
        )
    is_named = bool(head) and head[0].removesuffix("\r") in ("src\ttgt", "src\ttgt\tgold")
    if table.has_header and not is_named and not is_exact:
        _note(f"{place}: {table}{table.header_note}")
    elif not is_named and table.may_have_header:
        named = choice._replace(names=table.rows[0][:count])
        _note(f"warning: {place}:1: read as a pair; if these are names of columns, set {named}")
    return Layout(tuple(range(count)), has_header=is_named or table.has_header)


def refuse_ids(head: Sequence[str], place: object) -> None:
    """Refuses lines of several texts if their first column contains numbers, ids or URLs.

    Args:
      head, place: see `find_sentences`.
    """
    table = _table(head, split_at_tabs)
    if len(table.kinds) > 1 and table.kinds[0] in ("numbers", "ids", "URLs"):
        texts = ",".join(str(index + 1) for index in table.texts)
        raise ConfigError(
            f"{place}: expected columns of text, but {table}; keep the columns of text, for "
            f"example with cut -f{texts or 'COLUMNS'} (numbers and ids that are text can be read "
            "with --input_format=jsonl)"
        )


@functools.cache
def _note(message: str) -> None:
    """Prints a message about a file, once even if the file is read several times."""
    print(message, file=sys.stderr)


def _table(head: Sequence[str], split: Callable[[str], list[str]]) -> _Table:
    rows = [split(line.strip("\r\n")) for line in head if line.strip()]
    if not rows:
        return _Table([], [], False)
    width = Counter(map(len, rows)).most_common(1)[0][0]
    rows = [row for row in rows if len(row) == width]
    kinds, of_rest = _kinds(rows), _kinds(rows[1:])
    is_first = split(head[0].strip("\r\n")) == rows[0]
    are_names = len(rows) > 2 and all(_NAME.fullmatch(cell.strip()) for cell in rows[0])
    columns = zip(*rows[1:], strict=True)
    is_repeated = any(name in column for name, column in zip(rows[0], columns, strict=False))
    if not is_first or not are_names or is_repeated:
        return _Table(rows, kinds, False)
    are_other_kinds = any(a != b != _TEXT for a, b in zip(kinds, of_rest, strict=True))
    has_header = are_other_kinds or _names_sides(rows)
    return _Table(rows, of_rest if has_header else kinds, has_header)


def _names_sides(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has names of the two sides of pairs, and the other rows sentences."""
    names = {cell.strip().casefold() for cell in rows[0]}
    are_names = all(name in _SIDES or is_known(name) for name in names)
    has_sentences = any(map(_are_sentences, zip(*rows[1:], strict=True)))
    return are_names and len(names) == len(rows[0]) > 1 and has_sentences


def _kinds(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns what each column contains: text, numbers, URLs, language codes, ids or labels."""
    columns = [[cell.strip() for cell in column] for column in zip(*rows, strict=True)]
    columns = [[cell for cell in column if cell not in _MISSING] for column in columns]
    kinds = [_kind(column) for column in columns]
    if len(columns) > 2:
        kinds = [kind if column else "empty" for kind, column in zip(kinds, columns, strict=True)]
    # A few short words may look like codes. Codes are repeated, or known and beside ids.
    has_ids = not {"numbers", "ids"}.isdisjoint(kinds)
    kinds = [
        "language codes"
        if kind == _TEXT
        and column
        and all(map(CODE.fullmatch, column))
        and (2 * len(set(column)) <= len(column) or (has_ids and all(map(is_known, column))))
        else kind
        for kind, column in zip(kinds, columns, strict=True)
    ]
    if any(map(_are_sentences, columns)):
        beside = map(_kind_beside_sentences, columns)
        kinds = [a if a != _TEXT else b for a, b in zip(kinds, beside, strict=True)]
    return kinds


def _are_sentences(cells: Sequence[str]) -> bool:
    """Whether most cells of a column have several words."""
    return 2 * sum(" " in cell.strip() for cell in cells) > len(cells)


def _kind_beside_sentences(cells: Sequence[str]) -> str:
    """Returns what a column contains if another column has sentences.

    Ids of documents and labels may repeat: a dictionary has such words too, but no sentences.
    """
    if cells and all(map(_ID.fullmatch, cells)):
        return "ids"
    are_labels = len(cells) > 3 and 2 * len(set(cells)) <= len(cells)
    return "labels" if are_labels and all(map(_LABEL.fullmatch, cells)) else _TEXT


def _beginning(cell: str) -> str:
    text = " ".join(cell.split())
    return text if len(text) <= 30 else f"{text[:30]} ..."


def _kind(cells: Sequence[str]) -> str:
    if not cells:
        return _TEXT
    if all(map(_is_number, cells)):
        return "numbers"
    if all(map(_URL.fullmatch, cells)):
        return "URLs"
    return "ids" if all(map(_ID.fullmatch, cells)) and len(set(cells)) == len(cells) else _TEXT


def _is_number(cell: str) -> bool:
    """Whether a cell has digits and no letters, such as a score, a count or a date."""
    if _EXPONENT.fullmatch(cell):
        return True
    return any(map(str.isdecimal, cell)) and not any(map(str.isalpha, cell))


def own_text(text: str) -> str:
    """Returns a text without whitespace at its ends; empty for `RANGE`, which has no own text."""
    text = text.strip()
    return "" if text == RANGE else text


def join_ranges(rows: Iterable[Sequence[Line]]) -> Iterator[Sequence[Line]]:
    """Joins each row of texts with `RANGE` to the row before.

    If a verse of one side covers several verses of the other side, eBible's files have its text in
    the first of their lines, and `RANGE` in the others. The joined rows are followed by as many
    rows of empty texts, so that the number of rows does not change.
    """
    block: list[Sequence[Line]] = []
    for row in rows:
        if RANGE in row:
            block.append(row)
        else:
            yield from _joined(block)
            block = [row]
    yield from _joined(block)


def _joined(block: list[Sequence[Line]]) -> list[Sequence[Line]]:
    if len(block) < 2 and not any(RANGE in row for row in block):
        return block
    bad = next((text for row in block for text in row if isinstance(text, Malformed)), None)
    if bad is not None:
        return [[bad] * len(row) for row in block]
    sides = [
        [side for side in column if side not in ("", RANGE)] for column in zip(*block, strict=True)
    ]
    return [[" ".join(map(str, side)) for side in sides], *[[""] * len(sides)] * (len(block) - 1)]
