"""Durations in a config: steps, tokens, passes over the rows, or percent of the run."""

import re
from collections.abc import Collection
from typing import NamedTuple, TypeAlias

Value: TypeAlias = int | str
"""A duration in a config: a number of steps, or a number with a unit, such as `3e9tok`."""

UNITS = {"": "steps", "tok": "tokens", "ep": "passes", "%": "percent"}
"""What each unit counts: steps, tokens without padding, passes over the rows, or percent of the
steps of the run."""

_MEANINGS = {
    "tok": "tok (tokens, such as 3e9tok)",
    "ep": "ep (passes over the rows, such as 2ep)",
    "%": "% (of train.steps, such as 10%)",
}
_FORM = re.compile(r"(\d[\d_]*(?:\.\d+)?(?:[eE]\+?\d+)?)\s*([a-z]*|%)")


class Duration(NamedTuple):
    """A number with a unit."""

    amount: float
    unit: str
    """One of `UNITS`."""


def read(value: Value, units: Collection[str] = tuple(UNITS)) -> Duration:
    """Parses a duration of a config.

    Args:
      units: the possible units. Steps are always possible.

    Raises:
      ValueError: if the value is not a duration, has another unit, or is more than 100 %; the
        message lists the possible forms.
    """
    if type(value) is int and value >= 0:
        return Duration(value, "")
    form = _FORM.fullmatch(value.strip()) if isinstance(value, str) else None
    if form is None or form[2] not in ("", *units) or not form[2] and not form[1].isdecimal():
        forms = " or ".join(_MEANINGS[unit] for unit in units if unit)
        raise ValueError(f"must be a number of steps, or a number with the unit {forms}")
    amount = float(form[1].replace("_", ""))
    if form[2] == "%" and amount > 100:
        raise ValueError("must be at most 100%, the whole run")
    return Duration(amount, form[2])


def value(raw: Value, units: Collection[str] = tuple(UNITS)) -> Value:
    """Converts steps to an int, and returns other durations unchanged.

    Args and errors are as of `read`.
    """
    duration = read(raw, units)
    return raw if duration.unit else int(duration.amount)


def share(part: Value, whole: Value) -> float | None:
    """Returns `part` / `whole`, or None if their units differ."""
    first, second = read(part), read(whole)
    return first.amount / second.amount if first.unit == second.unit and second.amount else None
