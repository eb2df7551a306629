"""Quotations in errors are short."""

from xlj.io.quoting import quoted, shortened


def test_short_values_are_quoted_unchanged():
    for value in ("a\tb'", 3, 2.5, None, ["a", 1], {"a": "b"}, ""):
        assert quoted(value) == repr(value)


def test_long_values_are_cut():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("ab" * 1_000_000, [["x" * 1000] * 1000] * 1000, 10**290, deep):
        assert len(quoted(value)) < 700
    assert quoted("a" * 1000 + "b").startswith("'aaaa") and quoted("a" * 1000 + "b").endswith("b'")
    assert shortened("a\nb") == "a b"
    assert len(shortened("a " * 1_000_000)) < 310
    del deep
