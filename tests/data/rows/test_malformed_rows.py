"""Rows of text with malformed records: counts, the first place by reason, and the allowed share."""

import dataclasses
import json

import pytest
from made_rows import files, sentences

from xlj.config import ConfigError, Data
from xlj.data.rows import building
from xlj.data.rows.findings import malformed_records
from xlj.data.rows.preparing import prepare_rows
from xlj.data.rows.report import report

GOOD = 3000
BLANK = "bad.tsv: line 1501"


@pytest.fixture
def malformed(text, config, tmp_path):
    """Makes configs of `text` whose pairs have three blank lines and a line without a tab."""
    lines = [f"{a}\t{b}" for a, b in zip(sentences("p", GOOD), sentences("q", GOOD), strict=True)]
    lines[GOOD // 2 : GOOD // 2] = ["", " ", "no tab", ""]
    (tmp_path / "bad.tsv").write_text("\n".join(["\ufeffone\ttwo", *lines[1:]]) + "\n")

    def make(cache, **fields):
        fields = {"parallel": (f"{tmp_path}/bad.tsv",), "unit_bytes": 20_000, **fields}
        return config(tmp_path / cache, **fields)

    return make


def test_by_default_malformed_records_are_an_error_that_names_the_key(malformed):
    with pytest.raises(ConfigError, match=r"bad\.tsv: line 1501 is blank; .*data\.malformed=skip"):
        prepare_rows(malformed("cache"))


@pytest.mark.slow
def test_skipped_records_are_counted_and_the_first_place_of_each_reason_is_stored(
    malformed, tmp_path
):
    store = prepare_rows(malformed("one", malformed="skip"))
    task = store.task("pairs.xx-yy")
    assert task.text.malformed == {
        "blank line": (3, f"{tmp_path}/{BLANK}"),
        "wrong number of columns": (1, f"{tmp_path}/bad.tsv: line 1503"),
        "byte order marks at the starts of lines": (1, f"{tmp_path}/bad.tsv: line 1"),
    }
    assert task.text.dropped["blank line"] == 3 and task.text.sentences == GOOD + 4
    assert not store.task("text.xx").text.malformed
    lines = report(store, Data(alpha=0.7)).split("\n")
    (line,) = (line for line in lines if line.startswith("pairs.xx-yy: malformed"))
    assert f"blank line: 3 (first: {tmp_path}/{BLANK}); byte order marks" in line
    assert malformed_records(store.manifest.tasks) == line.partition(": ")[2]
    # Bitext rows are packed from the same lines, so each malformed line counts once.
    twice = [task, dataclasses.replace(task, name="bitext.xx-yy", kind="bitext")]
    assert malformed_records(twice) == line.partition(": ")[2]
    assert files(prepare_rows(malformed("three", malformed="skip", workers=3))) == files(store)


def test_a_manifest_without_malformed_records_has_no_field_for_them(built):
    content = json.loads((built.path / "manifest.json").read_bytes())
    assert all("malformed" not in task for task in content["tasks"])
    assert malformed_records(built.manifest.tasks) == ""
    for task in built.manifest.tasks:
        for file in (built.path / task.folder).glob("*.json"):
            assert "malformed" not in json.loads(file.read_bytes())


@pytest.mark.slow
def test_too_many_malformed_records_are_an_error_with_one_or_several_workers(
    malformed, monkeypatch
):
    monkeypatch.setattr(building, "_MIN_RECORDS", GOOD)
    from xlj.data.rows import preparing

    monkeypatch.setattr(preparing, "in_child", lambda doing, build, *args: build(*args))
    message = r"^pairs\.xx-yy: 4 of 3,004 records are malformed, more than data\.malformed_share=0"
    for workers in (1, 3):
        with pytest.raises(ConfigError, match=message) as error:
            prepare_rows(malformed("cache", malformed="skip", workers=workers))
        assert BLANK in str(error.value)
    # All rows were built: only the manifest was missing.
    share = {"malformed": "skip", "malformed_share": 4 / 3004}
    assert prepare_rows(malformed("cache", **share)).task("pairs.xx-yy").text.sentences == GOOD + 4
    monkeypatch.setattr(building, "_MIN_RECORDS", GOOD + 5)
    prepare_rows(malformed("few", malformed="skip"))
