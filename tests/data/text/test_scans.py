"""Input files are scanned once, and again when they have changed."""

import hashlib

from xlj.data.text.scans import ScanCache, scan
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


def test_files_are_scanned_again_only_when_they_change(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("a\nb\n")
    first = ScanCache(tmp_path / "inputs.json").scan_all([(path, 1)])
    with monkeypatch.context() as patch:
        patch.setattr(files, "blocks", None)  # reading would fail
        assert ScanCache(tmp_path / "inputs.json").scan_all([(path, 1)]) == first
    path.write_text("a\nb\nc\n")
    assert ScanCache(tmp_path / "inputs.json").scan_all([(path, 1)])[path, 1].lines == 3
    (tmp_path / "inputs.json").write_text("{ damaged")
    assert ScanCache(tmp_path / "inputs.json").scan_all([(path, 1)])[path, 1].lines == 3
