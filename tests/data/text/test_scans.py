"""Input files are scanned once, and again when they have changed."""

import hashlib
import json

import pytest

from xlj.data.text import scans
from xlj.data.text.scans import scan, scan_all
from xlj.io import files


def test_scan_counts_and_finds_the_first_problem(tmp_path):
    path = tmp_path / "a.tsv"
    raw = b"one\teins\n\ttwo\n\xff\xfe\tx\nno tab\na\tb\tc\nlast\tletzt\r\n"
    path.write_bytes(raw)
    found = scan(path, 2)
    assert found.sha256 == hashlib.sha256(raw).hexdigest()
    assert (found.lines, found.invalid, found.first_invalid) == (6, 1, 3)
    assert (found.odd_line, found.odd_tabs) == (4, 0)
    assert found.sentences == (2, 3)
    assert scan(path, 1).sentences == (5,)


@pytest.fixture
def cached(tmp_path):
    """Scans `a.txt` and `b.txt` with a cache; says which of them were read."""
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"{name}\nb\n")
    inputs = [(tmp_path / f"{name}.txt", 1) for name in "ab"]

    def run():
        read = []
        with pytest.MonkeyPatch.context() as patch:
            blocks = files.blocks
            patch.setattr(
                files, "blocks", lambda path, seen: read.append(path.stem) or blocks(path)
            )
            found = scan_all(inputs, tmp_path / "inputs.json")
        return "".join(read), [found[item].lines for item in inputs]

    return run


def test_files_are_scanned_again_only_when_they_change(cached, tmp_path):
    assert cached() == ("ab", [2, 2])
    assert cached() == ("", [2, 2])
    (tmp_path / "b.txt").write_text("a\nb\nc\n")
    assert cached() == ("b", [2, 3])


def odd_entries(change):
    """A cache whose entries are changed."""

    def damage(file):
        content = json.loads(file.read_text())
        for entry in content.values():
            change(entry)
        file.write_text(json.dumps(content))

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_text("{ damaged"),
        lambda file: file.write_bytes(b"\xff\xfe"),
        lambda file: file.write_text("[1, 2]"),
        lambda file: file.write_text("null"),
        lambda file: file.write_text(json.dumps(dict.fromkeys(json.loads(file.read_text()), 3))),
        lambda file: (file.unlink(), file.mkdir()),
        odd_entries(lambda entry: entry.pop("stamp")),
        odd_entries(lambda entry: entry.pop("scan")),
        odd_entries(lambda entry: entry.update(scan=[])),
        odd_entries(lambda entry: entry["scan"].pop("lines")),
        odd_entries(lambda entry: entry["scan"].update(more=1)),
        odd_entries(lambda entry: entry["scan"].update(lines="two")),
        odd_entries(lambda entry: entry["scan"].update(sentences=2)),
        odd_entries(lambda entry: entry["scan"].update(sentences=[1, 1])),
    ],
)
def test_an_odd_cache_costs_a_second_reading_only(cached, tmp_path, damage):
    cached()
    damage(tmp_path / "inputs.json")
    assert cached() == ("ab", [2, 2])


def test_an_interrupted_scan_keeps_what_it_has(cached, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        real = scans.scan

        def interrupted(path, columns, progress):
            if path.stem == "b":
                raise KeyboardInterrupt
            return real(path, columns, progress)

        patch.setattr(scans, "scan", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cached()
    assert cached() == ("b", [2, 2])
