"""Whatever is wrong with the input is said before any work, with its file and line."""

import sys

import pytest

from xlj.config import ConfigError
from xlj.data.rows.recipe import recipe_of
from xlj.data.text.checking import check_text


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
        ({"languages": ("en",), "mono": ("@en.txt",), "vocabulary": "@no"}, "No such file"),
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
        recipe_of(config(**fields), check_text(config(**fields).data))
    assert "tensorflow" not in sys.modules


def test_sizes_are_known_of_files(config, write):
    write("en.txt", "one two\n\nthree\n")
    write("more.txt", "four")
    write("en-de.tsv", "a\tbc\n\td\n")
    text = check_text(
        config(
            languages=("en",),
            mono=("@{language}.txt", "@more.txt"),
            pairs=("en-de",),
            parallel=("@{pair}.tsv", "phrasebook:{pair}"),
        ).data
    )
    assert text.sizes == {"text.en": [[3], [16]]}  # the pairs are not all of files
