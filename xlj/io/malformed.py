"""Represents malformed records of text, and skips them or raises errors."""

import codecs
import dataclasses
import sys
from collections.abc import Iterable, Iterator

from xlj.config import ConfigError

MARK = "\ufeff"
"""A byte order mark; within a line it is text."""
_MARKS = (  # the longest first, since the short ones are prefixes of others
    (codecs.BOM_UTF32_LE, "UTF-32LE"),
    (codecs.BOM_UTF32_BE, "UTF-32BE"),
    (codecs.BOM_UTF16_LE, "UTF-16LE"),
    (codecs.BOM_UTF16_BE, "UTF-16BE"),
)
_BLANKS = " \t\r\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Malformed:
    """Replaces a record that cannot be read.

    Attributes:
      reason: the name under which such records are counted.
      problem: the part of an error message after the place of the record.
      before: number of lines or rows before it in its part, if its index among the lines read is
        different; else -1.
    """

    reason: str
    problem: str
    before: int = -1


class Marked(str):
    """A line whose byte order mark was removed."""


Line = str | Malformed

INVALID_UTF8 = Malformed("invalid UTF-8", " is not UTF-8")
NUL = Malformed("NUL", " contains NUL, so it is not text (or is UTF-16)")


def too_long(longest: int) -> Malformed:
    """Returns the replacement of a line of more than `longest` bytes."""
    problem = f" has more than {longest:,} bytes; a line should be at most a paragraph of text"
    return Malformed("line too long", problem)


def strip_mark(line: str) -> str:
    """Removes byte order marks at the start of a line."""
    return Marked(line.lstrip(MARK)) if line.startswith(MARK) else line


def check_start(path: object, content: bytes) -> None:
    """Checks the first bytes of lines of text.

    Raises:
      ConfigError: as `check_encoding`, or if lines end in carriage returns only.
    """
    check_encoding(path, content)
    returns = content.count(b"\r") - content.count(b"\r\n") - content.endswith(b"\r")
    if returns > content.count(b"\n"):
        raise ConfigError(
            f"{path}: its lines end in carriage returns only; convert them to line feeds: "
            "tr '\\r' '\\n'"
        )


def check_encoding(path: object, content: bytes) -> None:
    """Checks the encoding of text by its first bytes, some hundred thousand of them.

    Raises:
      ConfigError: if it is not UTF-8, with the name of the encoding.
    """
    if encoding := encoding_of(content):
        name = encoding.partition(" ")[0]
        raise ConfigError(
            f"{path}: the text is {encoding}; convert it to UTF-8: iconv -f {name} -t UTF-8"
        )


def encoding_of(content: bytes) -> str:
    """Returns the encoding of text that is not UTF-8, by its byte order mark or NUL bytes.

    Empty if it is UTF-8 or unknown.
    """
    for mark, name in _MARKS:
        if content.startswith(mark):
            return f"{name} by its byte order mark"
    if b"\0" not in content:
        return ""
    return next((f"{name} by its bytes" for _, name in _MARKS if _is_likely(content, name)), "")


def _is_likely(content: bytes, encoding: str) -> bool:
    """Whether most blank bytes are also blanks in this encoding.

    If there are none, whether most characters are ASCII.
    """
    blanks = sum(content.count(blank.encode()) for blank in _BLANKS)
    text = content.decode(encoding, "replace")
    if blanks:
        return 2 * sum(map(text.count, _BLANKS)) > blanks
    return 2 * sum("\0" < letter < "\x80" for letter in text) > len(text)


class Skipping:
    """The policy of a command for malformed lines, and the lines skipped so far.

    Args:
      policy: `skip` replaces such a line by an empty line; `error` raises a `ConfigError`.
      flag: the flag that sets the policy, for that error; empty for none.

    Attributes:
      rows: indices, from 0, of the malformed lines in the last reading.
    """

    def __init__(self, policy: str = "error", flag: str = ""):
        self.rows: list[int] = []
        self._policy, self._flag = policy, flag
        self._places: dict[str, dict[str, None]] = {}

    def lines(self, source: Iterable[Line], place: str) -> Iterator[str]:
        """Yields the lines; errors contain `place` and the number of a line.

        Reading the same lines again does not count them again.
        """
        self.rows = []
        for row, line in enumerate(source):
            if isinstance(line, Malformed):
                self.skip(line, f"{place}{row + 1}: the line")
                self.rows.append(row)
                yield ""
                continue
            if row and isinstance(line, Marked):
                self._note("byte order mark at the start of a line", f"{place}{row + 1}")
            yield line

    def skip(self, record: Malformed, place: str) -> None:
        """Counts a malformed record; raises a `ConfigError` if the policy is `error`."""
        if self._policy == "error":
            hint = f"; fix it, or set {self._flag}=skip" if self._flag else ""
            raise ConfigError(f"{place}{record.problem}{hint}")
        self._note(record.reason, place.removesuffix(": the line"))

    def report(self) -> None:
        """Prints the number of malformed records by reason, and the first of each."""
        for reason, places in self._places.items():
            count, first = f"{len(places):,}", next(iter(places))
            print(f"skipped: {reason}: {count} (first: {first})", file=sys.stderr)

    def _note(self, reason: str, place: str) -> None:
        self._places.setdefault(reason, {})[place] = None
