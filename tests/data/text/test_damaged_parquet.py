"""Damaged Parquet files raise one-line errors; texts that are not UTF-8 are counted."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xlj.config import ConfigError, Data
from xlj.data.text.sources import open_sources
from xlj.data.text.text_units import ReadOptions, UnitReader


@pytest.fixture
def path(tmp_path):
    texts = [f"A sentence of some length, the {i}th." for i in range(400)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=100)
    return tmp_path / "a.parquet"


def read(path):
    (source,) = open_sources(f"{path}#text", ("text",), Data(), "data.mono")
    reader = UnitReader(tuple(source.parts(1 << 20)), 0, ReadOptions("skip", ""))
    return [line for chunk in reader.chunks() for line in chunk.columns[0]], reader


def test_damage_at_any_position_raises_a_one_line_error(path):
    content, errors = path.read_bytes(), 0
    for position in range(4, len(content), len(content) // 60):
        damaged = bytearray(content)
        damaged[position : position + 8] = b"\xff" * 8
        path.write_bytes(damaged)
        try:
            read(path)
        except ConfigError as error:
            assert str(error).startswith(f"{path}: ") and "\n" not in str(error)
            errors += 1
    assert errors > 20


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_text_that_is_not_utf8_is_counted(tmp_path, dictionary):
    raw = pa.array([b"good", b"b\xffd", None, b"fine"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 4, raw.buffers(), null_count=1)
    texts = texts.dictionary_encode() if dictionary else texts
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    lines, reader = read(tmp_path / "a.parquet")
    assert [line for line in lines if line] == ["good", "fine"]
    assert reader.dropped["invalid UTF-8"] == 1
