"""`data.languages=@FILE` sets the languages, their paths and their factors."""

import pytest

from xlj import config as schema
from xlj.cli import configs
from xlj.config import ConfigError

TABLE = "# code, path, factor\nen\tenglish/*.txt#text\t2.5\n\nyo_Latn\tyo.txt\t\n"


def load(tmp_path, table, *keys):
    file = tmp_path / "languages.tsv"
    file.write_text(table, "utf-8")
    flags = [f"--config.{key}" for key in (f"data.languages=@{file}", *keys)]
    return configs.load("xlm_r_base:tiny", flags, schema).data


def test_the_file_is_read_into_keys(tmp_path):
    data = load(tmp_path, TABLE, "data.mono=corpus/{path}")
    assert data.languages == ("en", "yo_Latn") and data.mono == ("corpus/{path}",)
    assert data.path_of == {"en": "english/*.txt#text", "yo_Latn": "yo.txt"}
    assert data.shares == {"en": 2.5, "yo_Latn": 1}
    assert load(tmp_path, TABLE, "data.mono=").mono == ("{path}",)
    codes = load(tmp_path, "en\nde\n")
    assert codes.languages == ("en", "de") and codes.paths == codes.sampled == ()
    assert codes.mono == ("phrasebook:{language}",)


@pytest.mark.parametrize(
    "table, problem",
    [
        ("en\ta\tb\tc\n", ":1: expected a language, its path and its factor with tabs"),
        ("en\n\ten.txt\n", ":2: expected a language"),
        ("en\nen\n", ":2: en is also in line 1"),
        ("en\ta.txt\nde\n", ":2: de has no path, but other languages have one"),
        ("en\t\t0\n", ":1: the factor '0' must be a number above 0"),
        ("en\t\tmuch\n", "the factor 'much' must be"),
        ("en\ta,b\n", ":1: the path 'a,b' contains a comma"),
        ("e n\n", ":1: the language 'e n' contains ' '"),
        ("\n# none\n", "this file has no language"),
    ],
)
def test_a_wrong_line_is_an_error_that_names_the_line(tmp_path, table, problem):
    with pytest.raises(ConfigError) as error:
        load(tmp_path, table)
    assert problem in str(error.value)


@pytest.mark.parametrize("keys", ["data.sampled=en", "data.paths=en=a"])
def test_the_file_and_the_keys_that_it_sets_exclude_each_other(tmp_path, keys):
    name = keys.partition("=")[0]
    with pytest.raises(ConfigError, match=f"is a file, which also sets {name}; remove {name}"):
        load(tmp_path, TABLE, keys)


def test_paths_must_be_used_and_complete(tmp_path):
    with pytest.raises(ConfigError, match="no template uses them; set data.mono={path}"):
        load(tmp_path, TABLE)
    with pytest.raises(ConfigError, match="cannot read this file"):
        configs.load("xlm_r_base:tiny", ["--config.data.languages=@none.tsv"], schema)
    flags = ["languages=en,de", "mono={path}", "paths=en=a"]
    with pytest.raises(ConfigError, match="de must be both in data.paths and in data.languages"):
        configs.load("xlm_r_base:tiny", [f"--config.data.{x}" for x in flags], schema)
