"""Quotes values in error messages, with bounded length."""

import itertools
import reprlib
from collections.abc import Iterable
from typing import Any

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80
_REPR.maxlevel = 1
_MOST = 300


def quoted(value: Any) -> str:
    """Returns the `repr` of a text or JSON value, shortened in the middle if it is long."""
    return _REPR.repr(value)


def shortened(text: str) -> str:
    """Puts a text on one line, and truncates it if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _MOST else f"{line[:_MOST]} ..."


def examples(values: Iterable[str]) -> str:
    """Returns the first three different texts, quoted."""
    distinct = dict.fromkeys(itertools.islice(values, 100))
    return ", ".join(quoted(value) for value in itertools.islice(distinct, 3))
