"""Writes the rows of a task: a file for each unit of text, then shards that join `SHARD_UNITS`
units each.

A unit is the part of a text that one process reads. Its files are `<folder>/units/<unit>.rows`,
with training and held-out records, and `<folder>/units/<unit>.json`, which is written last. The
files of a shard are `<folder>/<shard>.rows` and `<folder>/<shard>.json`. The content of a file
depends only on the text, so any process can write a missing file at any time.
"""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from xlj.config import ConfigError, row_kinds
from xlj.data.rows import store
from xlj.data.rows.row_kind import (
    Field,
    RowKind,
    Rows,
    count_rows,
    record_dtype,
    to_records,
    to_rows,
)
from xlj.data.rows.store import Split, TaskRows, TextCounts
from xlj.io import atomic, json_file, storage
from xlj.io.hashing import combine, name_hash, permute
from xlj.io.json_file import Record
from xlj.io.storage import AnyPath

SHARD_UNITS = 16
"""Number of units in a shard. It is fixed, so that rows do not depend on the number of workers."""

_PIECE_ROWS = 8192


@dataclasses.dataclass
class Counts:
    """Counts of a unit, of a shard, or of several shards.

    `store.TextCounts` describes the attributes that are not described here.

    Attributes:
      train, held_out: `rows`, `tokens`, `examples` and `sentences` of the split.
      malformed: by reason, the number of malformed records, and the place of the first. The place
        is (index of the unit, index of the part of the unit, number of lines before the record in
        this part), so a value has four numbers.
    """

    train: Counter[str] = dataclasses.field(default_factory=Counter)
    held_out: Counter[str] = dataclasses.field(default_factory=Counter)
    sentences: int = 0
    cut: int = 0
    dropped: Counter[str] = dataclasses.field(default_factory=Counter)
    input_bytes: int = 0
    input_sha256: str = ""
    malformed: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    too_long: Counter[str] = dataclasses.field(default_factory=Counter)
    other_languages: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, other: "Counts") -> None:
        """Adds counts of later text to these counts.

        The input digest becomes the digest of both input digests.
        """
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))
        for why, (count, *first) in other.malformed.items():
            total, *first_of_all = self.malformed.get(why, (0, *first))
            self.malformed[why] = (total + count, *first_of_all)
        self.sentences += other.sentences
        self.cut += other.cut
        self.input_bytes += other.input_bytes
        both = f"{self.input_sha256}{other.input_sha256}"
        self.input_sha256 = hashlib.sha256(both.encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Shards:
    """Describes the folder with the rows of one task, of one kind and length.

    The object is small enough to send to workers.

    Attributes:
      folder: the folder.
      kind: kind of rows, for `row_kinds.load`.
      units: number of units of text from which the rows are packed.
      length: number of tokens of a row.
      dtype: dtype of the token ids, `<u2` or `<u4`.
    """

    folder: AnyPath
    kind: str
    units: int
    length: int
    dtype: str

    @property
    def row_kind(self) -> RowKind:
        """The kind of rows."""
        kind: RowKind = row_kinds.load(self.kind)
        return kind

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a record."""
        return self.row_kind.fields(self.length, self.dtype)

    @property
    def count(self) -> int:
        """Number of shards."""
        return -(-self.units // SHARD_UNITS)

    def units_of(self, shard: int) -> range:
        """Returns the indices of the units of a shard."""
        return range(shard * SHARD_UNITS, min(self.units, (shard + 1) * SHARD_UNITS))

    def unit_file(self, unit: int) -> AnyPath:
        """Returns the file with the rows of a unit."""
        return self.folder / "units" / f"{unit:08d}.rows"

    def has_unit(self, unit: int) -> bool:
        """Whether the rows of a unit exist."""
        return self.unit_file(unit).with_suffix(".json").is_file()

    def has_shard(self, shard: int) -> bool:
        """Whether a shard exists and has the right size."""
        file = store.shard_file(self.folder, shard)
        stored = _read_counts(file.with_suffix(".json"))
        if stored is None or not file.is_file():
            return False
        rows = stored[0].train["rows"] + stored[0].held_out["rows"]
        return file.stat().st_size == rows * self._record_dtype.itemsize

    @contextmanager
    def writing_unit(self, unit: int, counts: Counts) -> Iterator[Callable[[Rows, Rows], None]]:
        """Writes the rows of a unit.

        The unit is complete when the block ends without an error.

        Args:
          unit: the index of the unit.
          counts: the counts of the unit, which are written at the end of the block.

        Yields:
          A function that appends training rows and held-out rows.
        """
        file, sizes, digest = self.unit_file(unit), [], hashlib.sha256()
        with atomic.as_config_error(file):
            file.parent.mkdir(parents=True, exist_ok=True)
        with atomic.writing(file) as out:

            def write(train: Rows, held_out: Rows) -> None:
                for rows in (train, held_out):
                    body = to_records(rows, self.fields).tobytes()
                    digest.update(body)
                    out.write(body)
                    sizes.append(count_rows(rows))

            yield write
        _write_counts(file, counts, {"pieces": sizes, "sha256": digest.hexdigest()})

    def finish(self, shard: int) -> None:
        """Writes a shard if all of its units exist, and removes the files of the units.

        Training rows are sorted by a hash, so that neighbours in the text are not neighbours in the
        shard. The examples of held-out rows of all units are packed again, into fewer rows.

        Raises:
          RuntimeError: if a unit is damaged. The unit is removed, so that the next run of the
            command rebuilds it.
        """
        if self.has_shard(shard) or not all(map(self.has_unit, self.units_of(shard))):
            return
        try:
            units = [self._read_unit(unit) for unit in self.units_of(shard)]
        except (FileNotFoundError, RuntimeError):
            if self.has_shard(shard):  # another process has written the shard
                return
            raise
        counts = Counts()
        for part, _, _ in units:
            counts.add(part)
        unpacked = np.concatenate([rows[is_held_out] for _, rows, is_held_out in units])
        held_out = self.row_kind.repack(to_rows(unpacked))
        counts.held_out["rows"] = count_rows(held_out)
        file = store.shard_file(self.folder, shard)
        digests = [hashlib.sha256(), hashlib.sha256()]
        with atomic.writing(file) as out:
            train = [(rows, ~is_held_out) for _, rows, is_held_out in units]
            for piece in _shuffled(train, shard):
                digests[0].update(piece.tobytes())
                out.write(piece.tobytes())
            body = to_records(held_out, self.fields).tobytes()
            digests[1].update(body)
            out.write(body)
        sha256 = [digest.hexdigest() for digest in digests]
        _write_counts(file, counts, {"sha256": dict(zip(store.SPLITS, sha256, strict=True))})
        for unit in self.units_of(shard):
            for ending in (".json", ".rows"):
                self.unit_file(unit).with_suffix(ending).unlink(missing_ok=True)

    def task_rows(
        self,
        name: str,
        folder: str,
        languages: tuple[str, ...],
        place: Callable[[int, int, int], str],
    ) -> TaskRows:
        """Returns the description of the rows of a task, from its finished shards.

        Args:
          name, folder, languages: the attributes of `TaskRows` with these names.
          place: a function that describes the place of a record. Its arguments are the index of the
            unit, the index of the part of the unit, and the number of lines before the record in
            this part.
        """
        total, digests = Counts(), {split: hashlib.sha256() for split in store.SPLITS}
        shards: dict[str, list[int]] = {split: [] for split in store.SPLITS}
        for shard in range(self.count):
            stored = _read_counts(store.shard_file(self.folder, shard).with_suffix(".json"))
            assert stored is not None, f"{name}: shard {shard} is not finished"
            counts, written = stored
            total.add(counts)
            for split in store.SPLITS:
                digests[split].update(written["sha256"][split].encode())
                shards[split].append(getattr(counts, split)["rows"])
        splits = {
            split: Split(
                **{key: getattr(total, split)[key] for key in _SPLIT_COUNTS},
                sha256=digests[split].hexdigest(),
                shards=tuple(shards[split]),
            )
            for split in store.SPLITS
        }
        text = TextCounts(
            sentences=total.sentences,
            cut=total.cut,
            dropped={why: count for why, count in sorted(total.dropped.items()) if count},
            input_bytes=total.input_bytes,
            input_sha256=total.input_sha256,
            malformed={
                why: (count, place(*first)) for why, (count, *first) in total.malformed.items()
            },
            too_long=dict(sorted(total.too_long.items(), key=lambda item: int(item[0]))),
            other_languages=dict(sorted(total.other_languages.items())),
        )
        return TaskRows(
            name=name,
            folder=folder,
            kind=self.row_kind.name,
            languages=languages,
            length=self.length,
            fields=self.fields,
            text=text,
            **splits,
        )

    @property
    def _record_dtype(self) -> np.dtype:
        return record_dtype(self.fields)

    def _read_unit(self, unit: int) -> tuple[Counts, np.ndarray, np.ndarray]:
        """Returns (counts, records, is_held_out) of a unit, after a check of the records' digest.

        `is_held_out` is bool [records].

        Raises:
          RuntimeError: if the unit is damaged; the unit then counts as missing.
        """
        file = self.unit_file(unit)
        stored = _read_counts(file.with_suffix(".json"))
        if stored is not None:
            counts, written = stored
            sizes = written["pieces"]  # numbers of records: training, held-out, training, ...
            is_held_out = np.repeat(np.arange(len(sizes)) % 2 == 1, sizes)
            if file.stat().st_size == len(is_held_out) * self._record_dtype.itemsize:
                content = storage.memory_map(file, self._record_dtype)
                if hashlib.sha256(content.data).hexdigest() == written["sha256"]:
                    return counts, content, is_held_out
        file.with_suffix(".json").unlink(missing_ok=True)
        raise RuntimeError(f"{file} is damaged; run the command again, which rebuilds it")


_COUNTERS = ("train", "held_out", "dropped", "too_long", "other_languages")
_SPLIT_COUNTS = ("rows", "tokens", "examples", "sentences")


def _shuffled(units: Sequence[tuple[np.ndarray, np.ndarray]], shard: int) -> Iterator[np.ndarray]:
    """Yields the selected records of the units of a shard, in pieces, in the order of a hash.

    Args:
      units: for each unit, its records, and whether each record is selected, bool [records].
      shard: the number of the shard, which is part of the hash.
    """
    chosen = [np.flatnonzero(keep) for _, keep in units]
    starts = np.cumsum([0, *map(len, chosen)])
    rows = np.arange(starts[-1])
    key = combine(name_hash("rows of a shard"), shard)
    order = permute(rows, np.full_like(rows, len(rows)), np.full(len(rows), key, np.uint64))
    for start in range(0, len(order), _PIECE_ROWS):
        numbers = order[start : start + _PIECE_ROWS]
        owners = np.searchsorted(starts, numbers, "right") - 1
        piece = np.empty(len(numbers), units[0][0].dtype)
        for owner in np.unique(owners):
            is_owned = owners == owner
            piece[is_owned] = units[owner][0][chosen[owner][numbers[is_owned] - starts[owner]]]
        yield piece


def _write_counts(file: AnyPath, counts: Counts, more: Record) -> None:
    content = {**vars(counts), **more}
    for name in store.OMITTED_IF_EMPTY:
        if not content[name]:
            del content[name]
    atomic.write(file.with_suffix(".json"), json.dumps(content).encode())


def _read_counts(file: AnyPath) -> tuple[Counts, Record] | None:
    """Reads the file that `_write_counts` wrote: the counts of a unit or shard, and further values.

    Returns None if the file is missing or damaged.
    """
    try:
        content: Record = json_file.read_object(file)
        more: Record = {name: content.pop(name) for name in ("pieces", "sha256") if name in content}
        for name in _COUNTERS:
            content[name] = Counter(content.get(name, {}))
        return Counts(**content), more
    except (ConfigError, TypeError, KeyError):
        return None
