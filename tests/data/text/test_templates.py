"""Splitting the names of pairs."""

from xlj.data.text.templates import split_pair


def test_splitting_pairs():
    assert split_pair("en-de") == ("en", "de")
    assert split_pair("en-zh-CN") == ("en", "zh-CN")
    assert split_pair("zh-CN-en", ("zh-CN", "en")) == ("zh-CN", "en")
