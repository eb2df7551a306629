"""Represents malformed records of text, and either skips them or raises errors."""

import codecs
import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping

from xlj.config import ConfigError

MARK = "\ufeff"
"""A byte order mark. Only a mark at the start of a line is removed; elsewhere it is text."""
_MARKS = (  # longer marks come first, because a short mark may be a prefix of a longer one
    (codecs.BOM_UTF32_LE, "UTF-32LE"),
    (codecs.BOM_UTF32_BE, "UTF-32BE"),
    (codecs.BOM_UTF16_LE, "UTF-16LE"),
    (codecs.BOM_UTF16_BE, "UTF-16BE"),
)
_BLANKS = " \t\r\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Malformed:
    """Replaces a record (a line of text, an object of JSON, a row of Parquet) that cannot be read.

    Attributes:
      reason: the name under which such records are counted.
      problem: the part of an error message that follows the place of the record.
      before: number of lines or rows before the record in its part of the source. -1 means: the
        index of the record among the records that the part yields.
    """

    reason: str
    problem: str
    before: int = -1


class Counted(str):
    """A text from which parts were dropped.

    Attributes:
      counts: the number of dropped parts, by reason.
      before: as in `Malformed`.
    """

    counts: Mapping[str, int]
    before: int

    def __new__(cls, text: str, counts: Mapping[str, int], before: int = -1) -> "Counted":
        counted = super().__new__(cls, text)
        counted.counts, counted.before = counts, before
        return counted


class Marked(str):
    """A line without the byte order mark that it began with."""


Line = str | Malformed

INVALID_UTF8 = Malformed("invalid UTF-8", " is not UTF-8")
NUL = Malformed("NUL", " contains NUL, so it is not text (or is UTF-16)")


def too_long(longest: int) -> Malformed:
    """Returns the `Malformed` that replaces a line of more than `longest` bytes."""
    problem = f" has more than {longest:,} bytes; a line should be at most a paragraph of text"
    return Malformed("line too long", problem)


def strip_mark(line: str) -> str:
    """Removes byte order marks at the start of a line; the result is then a `Marked`."""
    return Marked(line.lstrip(MARK)) if line.startswith(MARK) else line


def check_start(path: object, content: bytes) -> None:
    """Checks the encoding and the line ends of a text by its first bytes.

    Args:
      path: the file, for errors.
      content: the first bytes, some hundred thousand of them.

    Raises:
      ConfigError: if the text is not UTF-8, or if its lines end in carriage returns only.
    """
    check_encoding(path, content)
    returns = content.count(b"\r") - content.count(b"\r\n") - content.endswith(b"\r")
    if returns > content.count(b"\n"):
        raise ConfigError(
            f"{path}: its lines end in carriage returns only; convert the carriage returns to line "
            "feeds: tr '\\r' '\\n'"
        )


def check_encoding(path: object, content: bytes) -> None:
    """Checks the encoding of a text by its first bytes.

    Args:
      path: the file, for the error.
      content: the first bytes, some hundred thousand of them.

    Raises:
      ConfigError: if the text is not UTF-8; the message names the encoding.
    """
    if encoding := encoding_of(content):
        name = encoding.partition(" ")[0]
        raise ConfigError(
            f"{path}: the text is {encoding}; convert it to UTF-8: iconv -f {name} -t UTF-8"
        )


def encoding_of(content: bytes) -> str:
    """Detects the encoding of a text that is not UTF-8, by its byte order mark or its NUL bytes.

    Returns:
      The name of the encoding and how it was detected, such as `UTF-16LE by its byte order mark`;
      empty if the encoding is UTF-8 or unknown.
    """
    for mark, name in _MARKS:
        if content.startswith(mark):
            return f"{name} by its byte order mark"
    if b"\0" not in content:
        return ""
    return next((f"{name} by its bytes" for _, name in _MARKS if _is_likely(content, name)), "")


def _is_likely(content: bytes, encoding: str) -> bool:
    """Whether bytes are likely text in an encoding.

    Counts the bytes that are ASCII blanks (space, tab, line feed or carriage return). The encoding
    is likely if the decoded text has more than half as many blanks. If no byte is a blank, more
    than half of the decoded characters must be ASCII.
    """
    blank_bytes = sum(content.count(blank.encode()) for blank in _BLANKS)
    text = content.decode(encoding, "replace")
    if blank_bytes:
        return 2 * sum(map(text.count, _BLANKS)) > blank_bytes
    return 2 * sum("\0" < letter < "\x80" for letter in text) > len(text)


_MARK = "byte order mark at the start of a line (the rest of the line is kept)"


class Skipping:
    """What a command does with malformed lines, and counts of the lines skipped so far.

    Args:
      policy: `skip` replaces a malformed line by an empty line; `error` raises a `ConfigError`.
      flag: the command-line flag that sets the policy, for the error; empty if there is no flag.

    Attributes:
      rows: zero-based indices of the malformed lines in the last call of `lines`.
    """

    def __init__(self, policy: str = "error", flag: str = ""):
        self.rows: list[int] = []
        self._policy, self._flag = policy, flag
        self._places: dict[str, dict[str, None]] = {}

    def lines(self, source: Iterable[Line], place: str, first: int = 1) -> Iterator[str]:
        """Yields lines; applies the policy to malformed lines.

        Each malformed line counts once, even if the same lines are read several times.

        Args:
          source: the lines.
          place: the text before the number of a line in errors, such as `FILE:`.
          first: the number of the first line.

        Raises:
          ConfigError: on a malformed line, if the policy is `error`.
        """
        self.rows = []
        for row, line in enumerate(source):
            if isinstance(line, Malformed):
                self.skip(line, f"{place}{row + first}: the line")
                self.rows.append(row)
                yield ""
                continue
            if row and isinstance(line, Marked):
                self._count(_MARK, f"{place}{row + first}")
            yield line

    def skip(self, record: Malformed, place: str) -> None:
        """Counts a malformed record that the caller skips.

        Args:
          place: the place of the record, for errors and `report`.

        Raises:
          ConfigError: if the policy is `error`.
        """
        if self._policy == "error":
            hint = f"; fix it, or set {self._flag}=skip" if self._flag else ""
            raise ConfigError(f"{place}{record.problem}{hint}")
        self._count(record.reason, place.removesuffix(": the line"))

    def report(self) -> None:
        """Prints, for each reason, the number of malformed records and the place of the first."""
        for reason, places in self._places.items():
            count, first = f"{len(places):,}", next(iter(places))
            print(f"skipped: {reason}: {count} (first: {first})", file=sys.stderr)

    def _count(self, reason: str, place: str) -> None:
        self._places.setdefault(reason, {})[place] = None
