"""Joins the shards of a task into its files of the row store."""

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np

from xlj.config import ConfigError
from xlj.data.rows import packing
from xlj.data.rows.store import Split, TaskRows, row_crcs
from xlj.data.rows.units import Plan
from xlj.io import atomic


def join(plan: Plan, folder: Path) -> TaskRows:
    """Writes a task's file of rows and one of CRC32s into its folder of the row store; rows that
    are held out are packed anew.

    Raises:
      ConfigError: if there are no rows to train on.
      RuntimeError: if a shard is damaged.
    """
    task, shards = plan.task, plan.shards
    with atomic.mendable(folder):
        folder.mkdir(exist_ok=True)
    end = shards.read_end()
    assert end is not None, f"{task.name} was not read to its end"
    train, aside = Counter[str](), Counter[str]()
    cut, sentences, dropped = 0, 0, Counter(end.skipped)
    held: list[np.ndarray] = [np.empty((0, shards.length), shards.dtype)]
    with (
        atomic.writing(folder / "train.rows") as row_file,
        atomic.writing(folder / "train.crc") as crc_file,
    ):
        digest = hashlib.sha256()
        for index in range(end.units):
            found = shards.read(index)
            if found is None:
                raise RuntimeError(f"{shards.file(index)} is damaged; start again to build it anew")
            counts, rows, crcs, held_rows = found
            body = rows.tobytes()
            digest.update(body)
            row_file.write(body)
            crc_file.write(crcs.tobytes())
            held.append(held_rows)
            train.update(counts.train, tokens=packing.count_tokens(rows))
            aside.update(counts.held_out)
            cut += counts.cut
            sentences += counts.sentences
            dropped.update(counts.dropped)
    if not train["rows"]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items()) or "none"
        raise ConfigError(
            f"{task.name} yields no training rows: of {sentences} sentences, "
            f"{aside['sentences']} are held out; dropped: {reasons}"
        )
    held_rows = np.concatenate(held)
    if task.kind != "bitext":  # whose rows cannot be any fuller
        held_rows = packing.repack(held_rows)
    held_body = held_rows.tobytes()
    atomic.write(folder / "held_out.rows", held_body)
    atomic.write(folder / "held_out.crc", row_crcs(held_rows).tobytes())
    aside.update(tokens=packing.count_tokens(held_rows))
    aside["rows"] = len(held_rows)
    return TaskRows(
        name=task.name,
        kind=task.kind,
        languages=task.languages,
        length=shards.length,
        sentences=sentences,
        cut=cut,
        dropped=dict(sorted(dropped.items())),
        train=Split(sha256=digest.hexdigest(), **train),
        held_out=Split(sha256=hashlib.sha256(held_body).hexdigest(), **aside),
    )
