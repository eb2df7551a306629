"""document_alignment/documents.py and pair_formats.py: what is read, and what is written."""

import json

import pytest

from xlj.config import ConfigError
from xlj.data.text import splitting
from xlj.document_alignment import documents, pair_formats
from xlj.document_alignment.aligner import Pair
from xlj.document_alignment.pair_formats import Aligned
from xlj.io import tmx
from xlj.io.malformed import Skipping


@pytest.fixture
def read(tmp_path):
    def read(text, **options):
        path = tmp_path / "document.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return documents.read(path, **options)

    return read


def test_blank_lines_are_breaks_and_numbers_count_lines(read):
    document = read("One thing. Two.\n\n \nThree is here.\n  four it is \n")
    assert document.texts == ["One thing. Two.", "Three is here.", "four it is"]
    assert document.numbers == [0, 3, 4] and document.starts.tolist() == [0, 1, 1]
    assert document.ids == [] and document.ids_of(range(1)) == []


def test_ids_are_carried_and_ranges_are_no_breaks(read):
    text = "GEN 1:1\tIn the beginning.\nGEN 1:2\t<range>\nGEN 1:3\tAnd God said. It was.\n"
    document = read(text)
    assert document.texts[1] == "And God said. It was." and document.numbers == [0, 2]
    assert document.ids == ["GEN 1:1", "GEN 1:3"] and document.starts.tolist() == [0, 0]
    split = read(text, splitter=splitting.split)
    assert split.texts == ["In the beginning.", "And God said.", "It was."]
    assert split.numbers == [0, 1, 2] and split.ids == ["GEN 1:1", "GEN 1:3", "GEN 1:3"]


@pytest.mark.parametrize(
    "text, error",
    [
        ("\n \n", "has no sentence"),
        ("a1\tone is here\na2\n", "document.txt:2: 1 columns"),
        (b"good line\nbad \xff line\n", "document.txt:2: the line is not UTF-8"),
    ],
)
def test_bad_documents_are_refused(read, text, error):
    with pytest.raises(ConfigError, match=error):
        read(text)


def test_an_id_must_not_be_repeated(read):
    with pytest.raises(ConfigError, match="document.txt:3: the id a1 is also the id of line 1"):
        read("a1\tone is here\n\na1\ttwo are here\n", columns=("1", "2"))


def test_malformed_lines_can_be_skipped(read):
    document = read(b"good line\nbad \xff line\nlast line\n", skipping=Skipping("skip"))
    assert document.numbers == [0, 2] and document.starts.tolist() == [0, 1]


def aligned(with_ids=True):
    prefix = ("GEN 1:{}\t", "v{}\t") if with_ids else ("", "")
    sides = []
    for side, texts in enumerate((["A <b> & c.", "Two.\x0b", "Left."], ["甲。", "乙\u2028丙。"])):
        lines = [prefix[side].format(k) + text for k, text in enumerate(texts, 1)]
        sides.append((lines, texts))
    made = [
        documents.Document(
            texts,
            [0, 2, 3][: len(texts)],
            [line.split("\t")[0] for line in lines] if with_ids else [],
            None,
        )
        for lines, texts in sides
    ]
    pairs = [Pair(range(0, 2), range(0, 1), 0.98765), Pair(range(0, 0), range(1, 2), 0.0)]
    pairs.append(Pair(range(2, 3), range(1, 2), 0.25))
    return Aligned(*made, pairs)


def test_threshold_and_gaps_select_pairs():
    assert [pair.confidence for pair in pair_formats.select(aligned(), 0).pairs] == [0.98765, 0.25]
    assert len(pair_formats.select(aligned(), 0.25).pairs) == 2
    assert len(pair_formats.select(aligned(), 0.26).pairs) == 1


def test_formats_have_texts_scores_and_ids(tmp_path):
    selected = pair_formats.select(aligned(), 0)
    lines = list(pair_formats.columns([selected], True))
    assert lines[0] == "A <b> & c. Two.\t甲。\t0.9877\tGEN 1:1 GEN 1:2\tv1\n"
    assert lines[1].split("\t")[1] == "乙 丙。"  # one line
    without = pair_formats.select(aligned(with_ids=False), 0.5)
    assert list(pair_formats.columns([without], False)) == ["A <b> & c. Two.\t甲。\n"]
    record = json.loads(next(iter(pair_formats.records([selected], True))))
    assert record["source_sentences"] == ["A <b> & c.", "Two.\x0b"] and record["target"] == "甲。"
    assert record["source_lines"] == [0, 2] and record["target_ids"] == ["v1"]
    assert record["confidence"] == 0.9877
    assert list(pair_formats.ladder([selected])) == [
        '[0, 2]\t[0]\t["GEN 1:1", "GEN 1:2"]\t["v1"]\n',
        '[3]\t[2]\t["GEN 1:3"]\t["v2"]\n',
    ]
    assert list(pair_formats.ladder([without])) == ["[0, 2]\t[0]\n"]
    file = tmp_path / "pairs.tmx"
    write = pair_formats.writer("tmx", True, ["en", "zh"])
    file.write_text("".join(write([selected])), "utf-8")
    units = [(unit.source, unit.target) for unit in tmx.read(file)]
    assert units == [
        ("A <b> & c. Two.\N{REPLACEMENT CHARACTER}", "甲。"),
        ("Left.", "乙\u2028丙。"),
    ]
    assert '<prop type="x-source-ids">GEN 1:1 GEN 1:2</prop>' in file.read_text("utf-8")
