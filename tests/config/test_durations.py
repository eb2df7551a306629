"""The forms of a duration in a config, and shares of one duration in another."""

import pytest

from xlj.config import durations


@pytest.mark.parametrize(
    "value, amount, unit",
    [
        (0, 0, ""),
        (7, 7, ""),
        (" 12 ", 12, ""),
        ("3e9tok", 3e9, "tok"),
        ("1.5E+3 tok", 1500, "tok"),
        ("30_000tok", 30_000, "tok"),
        ("0.25ep", 0.25, "ep"),
        ("100%", 100, "%"),
    ],
)
def test_a_duration_is_a_number_with_a_unit(value, amount, unit):
    assert durations.read(value) == (amount, unit)
    stored = durations.value(value)
    assert stored == value if unit else (type(stored), stored) == (int, amount)


@pytest.mark.parametrize(
    "value",
    [-1, True, 2.0, None, "", "tok", "-1tok", "1e-3ep", ".5ep", "2.5", "1e3", "2 k", "3tokens"],
)
def test_other_forms_are_refused(value):
    with pytest.raises(ValueError, match="must be a number of steps, or a number with the unit"):
        durations.read(value)


def test_a_message_lists_only_the_units_that_the_key_takes():
    with pytest.raises(ValueError, match=r"with the unit tok \([^%]*\) or ep \([^%]*\)$"):
        durations.value("50%", ("tok", "ep"))


def test_more_than_the_whole_run_is_refused():
    with pytest.raises(ValueError, match="at most 100%"):
        durations.read("150%")


@pytest.mark.parametrize(
    "part, whole, share",
    [
        (2, 8, 0.25),
        ("2e9tok", "8e9tok", 0.25),
        ("0.5ep", "2ep", 0.25),
        (2, "8ep", None),
        ("2tok", "8ep", None),
        ("2tok", 8, None),
        (2, 0, None),
    ],
)
def test_a_share_needs_two_durations_of_one_unit(part, whole, share):
    assert durations.share(part, whole) == share
