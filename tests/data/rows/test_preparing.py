"""A config takes languages and lengths from the rows that it names; unsuitable rows are errors."""

import dataclasses
import shutil
import sys

import pytest

from xlj.config import ConfigError, parse
from xlj.data.rows import request
from xlj.data.rows.kinds.pairs import Pairs
from xlj.data.rows.preparing import open_rows, prepare_rows
from xlj.data.rows.request import request_of


@pytest.fixture
def rows(tiny, store, tmp_path):
    """`tiny` with `data.rows` set to a copy of its rows, and without the keys of text."""
    shutil.copytree(store.path.parent, tmp_path / "cache")
    (tmp_path / "cache" / store.path.name).rename(tmp_path / "cache" / "rows")
    for key in ("mono", "parallel", "languages", "pairs"):
        tiny.data[key] = ""
    tiny.data.cache = "/nowhere"
    tiny.data.rows = str(tmp_path / "cache" / "rows")
    return tiny


def test_a_config_takes_languages_and_lengths_from_its_rows(rows, store):
    data = open_rows(parse(rows))[0].data
    assert data.languages == ("en", "de", "sw") and data.pairs == ("en-de", "en-sw")
    assert (data.length, data.pair_length) == (32, 48)
    for processes in (1, 4):
        assert prepare_rows(parse(rows), processes=processes).manifest == store.manifest


def test_rows_may_be_named_by_their_hash(rows, store):
    rows.data.rows, rows.data.cache = store.path.name, str(store.path.parent)
    config = parse(rows, explicit=["data.rows", "data.cache"])
    assert prepare_rows(config).path == store.path
    assert open_rows(config)[0].data.vocabulary == str(store.vocabulary_file)
    rows.data.rows = "0123456789abcdef"
    with pytest.raises(ConfigError, match=r"data\.rows=0123456789abcdef: .*has no finished rows"):
        open_rows(parse(rows))


@pytest.mark.parametrize(
    "module, version",
    [*((request, name) for name in ("CLEANING", "FORMAT", "CHUNK_LINES")), (Pairs, "version")],
)
def test_rows_of_another_version_are_built_again(tiny, store, monkeypatch, module, version):
    config = parse(tiny)
    assert request_of(config).folder == store.path
    monkeypatch.setattr(module, version, 99)
    assert request_of(config).folder.parent == store.path.parent
    assert request_of(config).folder != store.path


def test_existing_rows_are_listed_if_text_is_missing(tiny, store):
    tiny.data.mono = "/no/such/{language}.txt"
    with pytest.raises(ConfigError, match=rf"(?s)matches none.*data\.rows=.*{store.path.name}"):
        prepare_rows(parse(tiny))
    for key, names in (("languages", "en,fr"), ("pairs", "en-fr")):  # rows of other text are not
        changed = parse(tiny.copy_and_resolve_references())
        data = dataclasses.replace(changed.data, **{key: tuple(names.split(","))})
        with pytest.raises(ConfigError) as error:
            request_of(dataclasses.replace(changed, data=data))
        assert "matches none" in str(error.value) and store.path.name not in str(error.value)


def test_only_kinds_of_rows_that_an_objective_reads_are_opened(rows, store):
    rows.objectives.tlm.batch_size = 0
    config, opened = open_rows(parse(rows))
    assert opened.manifest.tasks == store.tasks("text") and not opened.tasks("pairs")
    assert config.data.pairs == ("en-de", "en-sw")  # still evaluated


def test_a_config_without_rows_does_not_change(tiny):
    assert open_rows(parse(tiny)) == (parse(tiny), None)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"data.rows": "/no/such"}, r"data\.rows=/no/such: /no/such has no finished rows"),
        ({"objectives.camlm.batch_size": 8, "objectives.xlco.batch_size": 8},
         r"data\.rows=.*/rows has rows of .*, but none of kind bitext, which objectives\.xlco"),
        ({"model.positions": 40}, r"data\.rows=.*/rows has pairs rows of 48 tokens.*allows 38"),
        ({"data.vocabulary": "other.model"}, r"data\.rows=.* another vocabulary than data\.vocab"),
        ({"evaluation.retrieval.source": "held_out", "evaluation.retrieval.pairs": "en-fr"},
         r"pairs=en-fr: only pairs of data\.rows=.*/rows are held out"),
        ({"objectives.distillation.batch_size": 8, "objectives.distillation.language": "fr",
          "objectives.distillation.teacher": "some"},
         r"distillation\.language=fr is not in data\.rows="),
    ],
)  # fmt: skip
def test_rows_that_are_unsuitable_for_the_config_are_refused(
    rows, vocabulary, tmp_path, monkeypatch, changes, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.model").write_bytes(vocabulary.model)
    for path, value in changes.items():
        *sections, key = path.split(".")
        holder = rows
        for name in sections:
            holder = holder[name]
        holder[key] = value
    with pytest.raises(ConfigError, match=message):
        open_rows(parse(rows))


def test_finished_rows_of_a_seqio_source_are_read_without_seqio(tiny, store, tmp_path, monkeypatch):
    tiny.data.mono, tiny.data.cache = "seqio:task_{language}#text", str(tmp_path / "cache")
    folder = request_of(parse(tiny)).folder
    shutil.copytree(store.path.parent, folder.parent, dirs_exist_ok=True)
    (folder.parent / store.path.name).rename(folder)
    monkeypatch.setitem(sys.modules, "seqio", None)
    assert prepare_rows(parse(tiny)).manifest == store.manifest


def test_the_error_about_damaged_rows_names_the_key(rows, tmp_path):
    (tmp_path / "cache" / "rows" / "manifest.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"data\.rows=.*manifest\.json is damaged"):
        open_rows(parse(rows))
