"""Records: rows as they are on disk, with named fields of numbers and a checksum."""

import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from xlj.data.tokenizer.layout import PAD

Rows = Mapping[str, np.ndarray]
"""Rows: the array [rows, ...] of each field, by name."""

_CRC = "crc"


class Field(NamedTuple):
    """A field of a record.

    Attributes:
      name: name of the field.
      dtype: type of its numbers, such as `<u2` or `<f4`.
      shape: shape of the field in one row.
      is_text: whether the numbers are token ids.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_text: bool = False

    @property
    def fill(self) -> int:
        """The value of the field in a row without content: `<pad>` for token ids, else 0."""
        return PAD if self.is_text else 0


def record_dtype(fields: Sequence[Field]) -> np.dtype:
    """Returns the type of a record: the fields in order, and the CRC32 of their bytes."""
    return np.dtype([*((f.name, f.dtype, f.shape) for f in fields), (_CRC, "<u4")])


def to_records(rows: Rows, fields: Sequence[Field]) -> np.ndarray:
    """Converts rows to records, [rows]."""
    records = np.empty(count(rows), record_dtype(fields))
    for field in fields:
        records[field.name] = rows[field.name]
    records[_CRC] = _crcs(records)
    return records


def to_rows(records: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the fields of records, without their checksums."""
    return {name: records[name] for name in records.dtype.names or () if name != _CRC}


def find_damaged(records: np.ndarray) -> np.ndarray:
    """Returns the indices of records whose checksum is wrong."""
    return np.flatnonzero(_crcs(records) != records[_CRC])


def empty(fields: Sequence[Field], rows: int) -> dict[str, np.ndarray]:
    """Returns rows without content."""
    return {f.name: np.full((rows, *f.shape), f.fill, f.dtype) for f in fields}


def count(rows: Rows) -> int:
    """Returns the number of rows."""
    return len(next(iter(rows.values())))


def count_tokens(rows: Rows, fields: Sequence[Field]) -> int:
    """Counts the token ids in rows, without padding."""
    texts = [rows[field.name] for field in fields if field.is_text]
    return sum(int(np.count_nonzero(ids != PAD)) for ids in texts)


def _crcs(records: np.ndarray) -> np.ndarray:
    """Computes the CRC32 of the fields of each record, uint32 [records]."""
    size = records.dtype.itemsize
    end = size - records.dtype[_CRC].itemsize
    data = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), size)
    fields: np.ndarray = np.ascontiguousarray(data[:, :end])
    return np.array([zlib.crc32(row) for row in fields], "<u4")
