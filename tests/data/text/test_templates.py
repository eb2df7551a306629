"""Names of language pairs are split into their two languages."""

from xlj.data.text.templates import split_pair


def test_names_of_pairs_are_split_at_the_right_hyphen():
    assert split_pair("en-de") == ("en", "de")
    assert split_pair("en-zh-CN") == ("en", "zh-CN")
    assert split_pair("zh-CN-en", ("zh-CN", "en")) == ("zh-CN", "en")
