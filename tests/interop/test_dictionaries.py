"""Bilingual dictionaries are read in both directions; errors name the line."""

import gzip

import pytest

from xlj.config import ConfigError
from xlj.interop.dictionaries import load, read


def test_tabs_spaces_order_and_case_of_entries(tmp_path):
    file = tmp_path / "train.en-de.tsv.gz"
    text = (
        "dog\tHund\r\n\nhound Hund\nice cream\tEis\nthe\tDIE\nthe\tdie\nice\t  Eis \n"
        "dog\u00a0\tHund\nof\tvon  der\n"
    )
    file.write_bytes(gzip.compress(text.encode()))
    dictionary = read(file)
    assert dictionary == {
        "hund": ("dog", "hound"),
        "eis": ("ice cream", "ice"),
        "die": ("the",),
        "von  der": ("of",),
    }


def test_the_language_pair_determines_the_direction(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("a b\n")
    assert read(file, "en-de") == {"b": ("a",)}
    assert read(file, "de-en") == {"a": ("b",)}
    assert read(file, "zh-CN-en") == {"a": ("b",)}
    assert read(file, "de-fr", known="fr") == {"a": ("b",)}
    named = {"en-de.0-5000.txt": ("b", "a"), "fr-en.txt": ("a", "b"), "en-sr_RS.txt": ("b", "a")}
    for name, (word, translation) in named.items():
        (tmp_path / name).write_text("a b\n")
        assert read(tmp_path / name) == {word: (translation,)}


@pytest.mark.parametrize("name", ["words.txt", "bg-tr.txt", "en-.txt", "en-de.fr-en.txt"])
def test_a_name_without_a_direction_is_refused(tmp_path, name):
    (tmp_path / name).write_text("a b\n")
    with pytest.raises(ConfigError, match=f"{name}: the file name must contain one pair"):
        read(tmp_path / name)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"a b\nalone\n", "2: 'alone'; expected a word"),
        (b"a b\n\na b c\n", "3: 'a b c'; expected a word.*by a tab"),
        (b"a\tb\tc\n", "1: "),
        (b"a\t \n", "1: "),
        (b"a b\n\xff b\n", "2: the line is not UTF-8"),
    ],
)
def test_malformed_lines_are_refused(tmp_path, content, message):
    file = tmp_path / "en-de.txt"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"en-de.txt:{message}"):
        read(file)


def test_templates_load_the_dictionaries_of_all_pairs(tmp_path):
    for name, text in (("a.en-de", "x y"), ("a.fr-en", "v x"), ("b.en-de", "z y")):
        (tmp_path / name).write_text(text + "\n")
    dictionaries = load([f"{tmp_path}/b.{{pair}}", f"{tmp_path}/a.{{pair}}"], ["en-de", "fr-en"])
    assert dictionaries == ({"y": ("z",)}, {"y": ("x",)}, {"v": ("x",)})
    assert load([f"{tmp_path}/a.fr-en"]) == dictionaries[2:]
    assert load([]) == ()


@pytest.mark.parametrize(
    "templates, pairs, message",
    [
        (["a.{pair}"], ["de-fr"], "de-fr: one language must be en, as in en-de"),
        (["a.{pair}"], ["en-fr"], "no file for any pair; tried .*a.en-fr"),
        (["a.{pair}"], [], "no file for any pair; tried no path, because there are no pairs"),
        (["a.{pair}", "b.{pair}"], ["en-de"], "b.{pair}: no file for any pair"),
        (
            ["a.{pair}"],
            ["en-de", "en-it", "en-fr"],
            "en-it, en-fr: no file for these pairs in .*a.{pair}",
        ),
        (["none.en-de"], [], "none.en-de"),
    ],
)
def test_templates_without_files_are_refused(tmp_path, templates, pairs, message):
    (tmp_path / "a.en-de").write_text("x y\n")
    with pytest.raises(ConfigError, match=message):
        load([f"{tmp_path}/{template}" for template in templates], pairs)
