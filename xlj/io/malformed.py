"""Malformed records of text: the value in their place, and whether they are errors or skipped."""

import codecs
import dataclasses
import sys
from collections.abc import Iterable, Iterator

from xlj.config import ConfigError

MARK = "\ufeff"
"""A byte order mark; inside a line it is text."""
_MARKS = (  # the longest first: one begins like another
    (codecs.BOM_UTF32_LE, "UTF-32LE"),
    (codecs.BOM_UTF32_BE, "UTF-32BE"),
    (codecs.BOM_UTF16_LE, "UTF-16LE"),
    (codecs.BOM_UTF16_BE, "UTF-16BE"),
)
_BLANKS = " \t\r\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Malformed:
    """Stands for a record that cannot be read.

    Attributes:
      reason: what such records are counted under.
      problem: what an error says right after the place of the record.
      before: how many lines or rows stand before it in its part, where its place among the lines
        that are read does not tell; else -1.
    """

    reason: str
    problem: str
    before: int = -1


class Marked(str):
    """A line that began with a byte order mark, without it."""


Line = str | Malformed

INVALID_UTF8 = Malformed("invalid UTF-8", " is not UTF-8")
NUL = Malformed("NUL", " holds NUL, which is no text (text in UTF-16 does)")


def too_long(longest: int) -> Malformed:
    """Stands for a line of more than `longest` bytes."""
    problem = f" has more than {longest:,} bytes; each line should be a paragraph of text at most"
    return Malformed("line too long", problem)


def unmarked(line: str) -> str:
    """The line without byte order marks at its start."""
    return Marked(line.lstrip(MARK)) if line.startswith(MARK) else line


def check_start(path: object, content: bytes) -> None:
    """Refuses lines of text by their first bytes: a `ConfigError` as of `check_encoding`, or if
    they end in carriage returns alone."""
    check_encoding(path, content)
    returns = content.count(b"\r") - content.count(b"\r\n") - content.endswith(b"\r")
    if returns > content.count(b"\n"):
        raise ConfigError(
            f"{path}: its lines end in carriage returns alone; convert them to line feeds: "
            "tr '\\r' '\\n'"
        )


def check_encoding(path: object, content: bytes) -> None:
    """Refuses text by its first bytes, some hundred thousand of them: a `ConfigError` if it is in
    another encoding than UTF-8, with the name of that."""
    if encoding := encoding_of(content):
        name = encoding.partition(" ")[0]
        raise ConfigError(
            f"{path}: the text is {encoding}; convert it to UTF-8: iconv -f {name} -t UTF-8"
        )


def encoding_of(content: bytes) -> str:
    """The encoding of text that is not UTF-8, by its byte order mark, or guessed if it holds NUL;
    empty if it is UTF-8, or nothing tells."""
    for mark, name in _MARKS:
        if content.startswith(mark):
            return f"{name} by its byte order mark"
    if b"\0" not in content:
        return ""
    return next((f"{name} by its bytes" for _, name in _MARKS if _is_likely(content, name)), "")


def _is_likely(content: bytes, encoding: str) -> bool:
    """Whether the blanks among the bytes are mostly blanks in this encoding too; where there are
    none, whether most of the characters are ASCII."""
    there = sum(content.count(blank.encode()) for blank in _BLANKS)
    text = content.decode(encoding, "replace")
    if there:
        return 2 * sum(map(text.count, _BLANKS)) > there
    return 2 * sum("\0" < letter < "\x80" for letter in text) > len(text)


class Skipping:
    """What a command does with malformed lines.

    Args:
      policy: `skip`: nothing is read in the place of such a line; `error`: it is a `ConfigError`.
      flag: which sets the policy, for that error; empty if none does.

    Attributes:
      rows: of the lines that were read last, those that were malformed, from 0.
    """

    def __init__(self, policy: str = "error", flag: str = ""):
        self.rows: list[int] = []
        self._policy, self._flag = policy, flag
        self._places: dict[str, dict[str, None]] = {}

    def lines(self, found: Iterable[Line], place: str) -> Iterator[str]:
        """The lines; `place` and the number of a line name it. A second reading of the same lines
        counts none of them again."""
        self.rows = []
        for row, line in enumerate(found):
            if isinstance(line, Malformed):
                self.skip(line, f"{place}{row + 1}: the line")
                self.rows.append(row)
                yield ""
                continue
            if row and isinstance(line, Marked):
                self._note("byte order mark at the start of a line", f"{place}{row + 1}")
            yield line

    def skip(self, record: Malformed, place: str) -> None:
        """Notes a malformed record; a `ConfigError` if the policy is `error`."""
        if self._policy == "error":
            hint = f"; mend it, or set {self._flag}=skip" if self._flag else ""
            raise ConfigError(f"{place}{record.problem}{hint}")
        self._note(record.reason, place.removesuffix(": the line"))

    def report(self) -> None:
        """Prints how many records were malformed, by reason, and the first of each."""
        for reason, places in self._places.items():
            count, first = f"{len(places):,}", next(iter(places))
            print(f"left out: {reason}: {count} (first: {first})", file=sys.stderr)

    def _note(self, reason: str, place: str) -> None:
        self._places.setdefault(reason, {})[place] = None
