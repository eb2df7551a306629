"""Templates find their sources, and whatever is wrong with the input is said before any work."""

import gzip
import sys
import types
from collections import Counter

import pytest

from xlj.config import Config, ConfigError, Data, Objectives
from xlj.config.objectives import MultilingualMLM, TranslationLM
from xlj.data.rows import recipe
from xlj.data.text.text_tasks import text_tasks

READ = Objectives(
    options={"mmlm": MultilingualMLM(batch_rows=1), "tlm": TranslationLM(batch_rows=1)}
)
"""Rows of text and of pairs are wanted."""


@pytest.fixture
def config(tmp_path):
    """A config over files in a temporary folder; fields of `data` by name."""

    def make(**fields) -> Config:
        fields = {"cache": str(tmp_path / "cache"), "vocabulary_size": 100, **fields}
        fields = {
            k: v.replace("@", f"{tmp_path}/") if k == "cache" else v for k, v in fields.items()
        }
        for name in ("mono", "parallel"):
            templates = fields.get(name, ())
            fields[name] = tuple(t.replace("@", f"{tmp_path}/") for t in templates)
        return Config(data=Data(**fields), objectives=READ)

    return make


@pytest.fixture
def write(tmp_path):
    def to(name: str, content: str | bytes) -> None:
        raw = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)

    return to


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


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"languages": ("en",), "mono": ("@{lang}.txt",)},
            r"unknown placeholder \{lang\}.*language",
        ),
        ({"languages": ("en", "de"), "mono": ("@en.txt",)}, r"same source; use \{language\}"),
        ({"languages": ("en",), "mono": ("@en.txt|@en.txt",)}, "must name one file"),
        ({"languages": ("en",), "mono": ("@en.json",)}, "json files cannot be read"),
        ({"languages": ("en",), "mono": ("tfds:wiki",)}, "tfds:NAME#FIELD$"),
        ({"pairs": ("en-de",), "parallel": ("seqio:task#a",)}, r"seqio:NAME#FIELD\|FIELD"),
        ({"pairs": ("en-de",), "parallel": ("@{source}.txt|@{target}.txt",)}, "de.txt is missing"),
        ({"pairs": ("en-de",), "parallel": ("@empty|@empty",)}, "pairs.en-de is empty"),
        ({"pairs": ("en",), "parallel": ("@{pair}",)}, "two languages and a hyphen"),
        ({"pairs": ("en-en",), "parallel": ("@{pair}",)}, "two languages and a hyphen"),
        ({"languages": ("xx",), "mono": ("@empty",)}, "text.xx is empty.*/empty"),
        ({"languages": ("xx",), "mono": ("@blank",)}, "text.xx is empty.*/blank"),
        ({"pairs": ("en-de",), "parallel": ("@notab",)}, "notab: line 2 has 0 tabs"),
        ({"pairs": ("en-de",), "parallel": ("@twotabs",)}, "twotabs: line 1 has 2 tabs"),
        ({"pairs": ("en-de",), "parallel": ("@en.txt|@notab",)}, "1 lines but .*notab has 2"),
        ({"languages": ("en",), "mono": ("@latin1",)}, "latin1: line 3 is not UTF-8"),
        ({"languages": ("en",), "mono": ("@en.txt",), "vocabulary": "@no"}, "no such file"),
        (
            {
                "languages": ("en",),
                "mono": ("seqio:t#text",),
                "seqio_modules": ("no.such_module",),
            },
            "seqio_modules=no.such_module",
        ),
        (
            {"languages": ("en",), "mono": ("@en.txt",), "cache": "@en.txt/x"},
            "data.cache=.*en.txt/x",
        ),
        ({}, "no data"),
    ],
)
def test_bad_input_is_refused_before_any_work(config, write, fields, message):
    write("en.txt", "a")
    write("en.json", "{}")
    write("empty", "")
    write("blank", " \n\t\n")
    write("notab", "a\tb\nab\n")
    write("twotabs", "a\tb\tc\n")
    write("latin1", b"a\nb\n\xe9t\xe9\n")
    with pytest.raises(ConfigError, match=message):
        recipe.resolve(config(**fields))
    assert "tensorflow" not in sys.modules


def test_lines_that_are_not_utf8_are_skipped_on_both_sides(config, write):
    write("x.en", b"a\n\xff\nc\nd\n")
    write("x.de", b"e\nf\n\xfe\nh\n")
    fields = {"pairs": ("en-de",), "parallel": ("@x.{source}|@x.{target}",)}
    (task,) = recipe.resolve(config(**fields, invalid_utf8="skip")).tasks
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
    monkeypatch.setitem(sys.modules, "xlj.phrasebook", stub)
    monkeypatch.setattr("xlj.phrasebook", stub, raising=False)
    fields = {"mono": ("phrasebook:{language}",), "parallel": ("phrasebook:{pair}",)}
    good = config(languages=("en", "de"), pairs=("en-de",), **fields)
    first, _, pairs = text_tasks(good.data)
    assert [line for (line,) in read(first)] == ["one", "", "two en", ""]
    assert read(pairs) == [("a", "en-de")] * 5000
    with pytest.raises(ConfigError, match="languages=sw.*phrasebook:sw"):
        text_tasks(config(languages=("en", "sw"), mono=("phrasebook:{language}",)).data)


def test_text_vocabulary_and_rows_depend_on_content_only(config, write, tmp_path, monkeypatch):
    write("en.txt", "a\nb\n")
    write("copy.txt", "a\nb\n")
    write("other.txt", "a\nc\n")
    monkeypatch.setattr(recipe.Vocabulary, "load", lambda path: types.SimpleNamespace(digest=path))

    def names(**change) -> tuple[str, str, str]:
        fields = {"languages": ("en",), "mono": ("@en.txt",), "vocabulary": "v", **change}
        found = recipe.resolve(config(**fields))
        return found.text_folder.name, found.vocabulary_file.name, found.folder.name

    base = names()
    none = [
        {"mono": ("@copy.txt",)},
        {"workers": 7},
        {"alpha": 0.1},
        {"cache": str(tmp_path / "c2")},
        {"pair_length": 64},  # there are no pairs
    ]
    every = [
        {"mono": ("@other.txt",)},
        {"mono": ("@en.txt", "@other.txt")},
        {"held_out_lines": 5},
        {"languages": ("de",)},
    ]
    rows = [{"length": 64}, {"vocabulary": "w"}]
    assert {names(**change) for change in none} == {base}
    assert all(not set(base) & set(names(**change)) for change in every)
    assert all(names(**change)[:2] == base[:2] for change in rows)
    assert len({names(**change) for change in [*none, *every, *rows]}) == 1 + len(every) + len(rows)
    # The settings of a trained vocabulary name its file; rows know its content only.
    text, vocabulary, folder = names(vocabulary_size=101)
    assert (text, folder) == (base[0], base[2]) and vocabulary != base[1]
