"""Defines the interface of a kind of rows, and records: rows as they are on disk.

A subclass implements each kind of rows. A record has named fields of numbers and a checksum.
"""

import abc
import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xlj.data.tokenizer.layout import PAD, Ragged

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
    records = np.empty(count_rows(rows), record_dtype(fields))
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


def count_rows(rows: Rows) -> int:
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


@dataclasses.dataclass(frozen=True)
class Packed:
    """Packed rows, and counts of what happened to the input.

    Attributes:
      rows: the rows.
      examples: number of examples in the rows; each example starts with `<s>`.
      sentences: number of records of the source that are in the rows, such as lines or pairs.
      cut: number of documents that were cut into several examples, or of sentences that were
        truncated.
      dropped: number of records that are not in the rows, by reason.
      too_long: `RowKind.row_tokens` of each record that was dropped because it is too long, int64.
    """

    rows: Rows
    examples: int
    sentences: int
    cut: int = 0
    dropped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    too_long: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0, np.int64))


class Teacher(NamedTuple):
    """A teacher of sentence vectors.

    Attributes:
      digest: of everything that determines its vectors.
      width: number of dimensions of its vectors.
      languages: the languages that it reads. Of a pair, it reads the first sentence in one of
        them. Empty for text with one column.
    """

    digest: str
    width: int
    languages: tuple[str, ...] = ()


class RowKind(abc.ABC):
    """A kind of rows: its text, the fields of its records, and how text is packed into them.

    docs/own_objective.md shows an example.

    Attributes:
      name: name of the kind; an identifier.
      source: the config key of the templates of its text.
      columns: names of the columns of a source. Kinds with the same source have the same columns.
      optional: how many of the last columns may be empty in a record. `data.filter` and
        `data.exclude` do not read these columns.
      deciding: how many of the first columns decide which records are held out; 0: all.
      numbers: names of columns of numbers, which are separated by spaces. `pack` gets such a column
        as a `Ragged` of float32 instead of ids.
      prompts: texts that begin the text of each column; empty for no prompts.
      teacher: whose vectors the rows contain; None for rows without vectors. `pack` gets the vector
        of each record as a last column of float32, after the columns of the source.
      length: the config key of the length of a row, in tokens.
      has_halves: whether each row has two fields of half its length.
      version: version of `pack`. It is part of the recipe of rows, so a new version rebuilds them.
    """

    name: str
    source: str
    columns: tuple[str, ...]
    length: str
    has_halves: bool = False
    version: int = 1
    optional: int = 0
    deciding: int = 0
    numbers: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    teacher: Teacher | None = None

    def fields(self, length: int, ids: str) -> tuple[Field, ...]:
        """Returns the fields of a record. The default has one field of token ids, `tokens`.

        Args:
          length: number of tokens of a row.
          ids: type of token ids, `<u2` or `<u4`.
        """
        return (Field("tokens", ids, (length,), is_text=True),)

    def batch_fields(self, length: int, ids: str) -> tuple[Field, ...]:
        """Returns the fields of a row in a batch: those of its record, and `languages`.

        Args:
          length: number of tokens of a row.
          ids: type of token ids.
        """
        sides = max(2, len(self.columns))
        return (*self.fields(length, ids), Field("languages", "<i4", (sides,)))

    @abc.abstractmethod
    def pack(
        self,
        columns: Sequence[Ragged],
        length: int,
        ids: np.dtype,
        *,
        documents: np.ndarray,
        mask: int,
    ) -> Packed:
        """Packs text into rows. The result depends on the arguments only.

        Args:
          columns: the token ids of each column of the source.
          length: number of tokens of a row.
          ids: type of token ids.
          documents: the document of each record of the source, int64 [records], non-decreasing.
          mask: the id of `<mask>`.
        """

    def repack(self, rows: Rows) -> Rows:
        """Packs the examples of rows again, into fewer rows if possible.

        The held-out examples of all parts of a text are packed again. The default keeps the rows.
        """
        return rows

    def unpack(self, rows: Rows) -> tuple[Ragged, ...]:
        """Returns the columns of the source that are in rows, without special tokens."""
        raise NotImplementedError(f"rows of kind {self.name} cannot be unpacked")

    def row_tokens(self, columns: Sequence[Ragged]) -> np.ndarray:
        """Returns the length of the shortest row that has room for a record, int64 [records].

        The default is the length of an example with all columns: `<s> A </s> B </s>`.
        """
        lengths: np.ndarray = np.sum([column.lengths for column in columns], axis=0)
        return lengths + len(columns) + 1

    def layout(self, rows: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Returns the texts of rows that an encoder reads one by one, as rows with `tokens`.

        Args:
          rows: the fields of a batch, and `languages`, int32 [rows, sides]: arrays of NumPy or JAX.

        Returns:
          Rows with the fields `tokens` and `languages`. The default returns the rows.
        """
        return ({name: rows[name] for name in ("tokens", "languages")},)

    def slots(self, rows: Mapping[str, Any]) -> tuple[int, ...]:
        """Returns the largest number of examples in a row of each text of `layout`."""
        raise NotImplementedError(f"rows of kind {self.name} have no fixed number of examples")

    def scores(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields of rows that are neither text nor `languages`.

        Args:
          rows: the fields of a batch.
        """
        return {}
