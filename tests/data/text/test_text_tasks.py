"""Templates find their sources, and blocks of clean text come out of them, in order."""

import types
from collections import Counter

import pytest

from xlj.config import ConfigError
from xlj.data.text.text_tasks import text_tasks


def read(task) -> list[tuple[str, ...]]:
    return [row for block in task.blocks() for row in zip(*block, strict=True)]


def test_templates_are_read_in_order_and_lines_are_cleaned(config, write):
    write("en.txt", "one \t line\r\n\r\n  next\u00a0document\u2028still\r\n")
    write("more.en.gz", "third")
    tasks = text_tasks(
        config(languages=("en",), mono=("@more.{language}.gz", "@{language}.txt")).data
    )
    assert [t.name for t in tasks] == ["text.en"]
    expected = ["third", "", "one line", "", "next document still", ""]
    assert [line for (line,) in read(tasks[0])] == expected


def test_pairs_of_one_file_and_of_two(config, write):
    write("en-de.tsv", "a\tb\r\n c \td\n")
    write("en-de.en", "e\n\nf\n")
    write("en-de.de.gz", "g\nh\ni")
    both = ("@{source}-{target}.tsv", "@{pair}.{source}|@{pair}.{target}.gz")
    (task,) = text_tasks(config(pairs=("en-de",), parallel=both).data)
    assert task.languages == ("en", "de")
    assert read(task) == [("a", "b"), ("c", "d"), ("e", "g"), ("", "h"), ("f", "i")]


def test_all_misses_are_named_at_once(config, write):
    write("en.txt", "a")
    with pytest.raises(ConfigError) as error:
        text_tasks(
            config(languages=("en", "de", "fr"), mono=("@{language}.txt", "@x/{language}.gz")).data
        )
    message = str(error.value)
    for part in (
        "languages=de",
        "/de.txt",
        "languages=fr",
        "/fr.txt",
        "x/{language}.gz",
        "x/en.gz",
    ):
        assert part in message
    assert "languages=en " not in message


def test_lines_that_are_not_utf8_are_skipped_on_both_sides(config, write):
    write("x.en", b"a\n\xff\nc\nd\n")
    write("x.de", b"e\nf\n\xfe\nh\n")
    fields = {"pairs": ("en-de",), "parallel": ("@x.{source}|@x.{target}",)}
    (task,) = text_tasks(config(**fields, invalid_utf8="skip").data)
    skipped: Counter = Counter()
    rows = [row for block in task.blocks(skipped) for row in zip(*block, strict=True)]
    assert rows == [("a", "e"), ("d", "h")]
    assert skipped == {"invalid UTF-8": 2}


def test_phrasebook(config, monkeypatch, tmp_path):
    stub = types.ModuleType("xlj.phrasebook")
    stub.__file__ = str(tmp_path / "phrasebook" / "__init__.py")
    stub.LANGUAGES = ("en", "de")
    stub.text_lines = lambda language: iter(["one", "", f"two {language}"])
    stub.pair_lines = lambda pair: iter([("a", pair)] * 5000)
    monkeypatch.setattr("xlj.data.text.sources.phrasebook", stub)
    fields = {"mono": ("phrasebook:{language}",), "parallel": ("phrasebook:{pair}",)}
    good = config(languages=("en", "de"), pairs=("en-de",), **fields)
    first, _, pairs = text_tasks(good.data)
    assert [line for (line,) in read(first)] == ["one", "", "two en", ""]
    assert read(pairs) == [("a", "en-de")] * 5000
    with pytest.raises(ConfigError, match="languages=sw.*phrasebook:sw"):
        text_tasks(config(languages=("en", "sw"), mono=("phrasebook:{language}",)).data)
