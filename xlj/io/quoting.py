"""Quotations in error messages, short however long the text is."""

import itertools
import reprlib
from collections.abc import Iterable
from typing import Any

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80
_REPR.maxlevel = 1
_MOST = 300


def quoted(value: Any) -> str:
    """The `repr` of a text or of a value of JSON; of a long one its start and end."""
    return _REPR.repr(value)


def shortened(text: str) -> str:
    """The text on one line, a long one without its end."""
    line = " ".join(text.split())
    return line if len(line) <= _MOST else f"{line[:_MOST]} ..."


def examples(values: Iterable[str]) -> str:
    """The first three texts that differ, each quoted."""
    found = dict.fromkeys(itertools.islice(values, 100))
    return ", ".join(quoted(value) for value in itertools.islice(found, 3))
