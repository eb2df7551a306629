"""Durations in a config: steps, or tokens or passes, which rows turn into steps."""

import re
from typing import NamedTuple, TypeAlias

Value: TypeAlias = int | str
"""As a config has it: a number of steps, or a number and a unit, such as `3_000_000_000tok`."""

UNITS = {"": "steps", "tok": "tokens", "ep": "passes"}
"""What each unit counts: steps; tokens without padding; passes over the rows."""

_FORM = re.compile(r"(\d[\d_]*(?:\.\d+)?(?:[eE]\+?\d+)?)\s*([a-z]*)")


class Duration(NamedTuple):
    """How long something lasts."""

    amount: float
    unit: str
    """One of `UNITS`."""


def read(value: Value) -> Duration:
    """The duration that a value of a config means; a `ValueError` says what it may be."""
    if type(value) is int and value >= 0:
        return Duration(value, "")
    form = _FORM.fullmatch(value.strip()) if isinstance(value, str) else None
    if form is None or form[2] not in UNITS or not form[2] and not form[1].isdecimal():
        raise ValueError(
            "must be a number of steps, or of tokens or passes with a unit, such as 3e9tok or 2ep"
        )
    return Duration(float(form[1].replace("_", "")), form[2])


def value(given: Value) -> Value:
    """A value, of which steps are a number, however they were given; errors as of `read`."""
    duration = read(given)
    return given if duration.unit else int(duration.amount)


def share(part: Value, whole: Value) -> float | None:
    """How much of a duration another one is; None if they have different units."""
    first, second = read(part), read(whole)
    return first.amount / second.amount if first.unit == second.unit and second.amount else None
