"""Quotes values in error messages, and limits their length."""

import itertools
import reprlib
from collections.abc import Iterable
from typing import Any

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80
_REPR.maxlevel = 1
_MAX_CHARACTERS = 300


def quoted(value: Any) -> str:
    """Returns the `repr` of a text or JSON value; omits the middle of a long value."""
    return _REPR.repr(value)


def shortened(text: str) -> str:
    """Returns a text as one line, without the end of a long text."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]} ..."


def examples(values: Iterable[str]) -> str:
    """Returns the first three different texts among the first 100, quoted, with commas."""
    distinct = dict.fromkeys(itertools.islice(values, 100))
    return ", ".join(quoted(value) for value in itertools.islice(distinct, 3))
