"""Writes labelled rows to a row store, in a folder named by a hash of the rows."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xlj.config import ConfigError
from xlj.data.labelled.features import Features
from xlj.data.rows import row_records, store
from xlj.data.rows.row_records import Field, Rows
from xlj.data.rows.store import Manifest, RowStore, Split, TaskRows
from xlj.data.tokenizer.layout import BOS
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic


def write(
    cache: Path, kind: str, features: Mapping[str, Features], vocabulary: Vocabulary
) -> RowStore:
    """Writes a row store with the training examples of each language, unless it exists.

    Several processes may write the same store at the same time; the first complete one is used.

    Args:
      cache: the folder of row stores.
      kind: the kind of rows, one of `objectives.supervised.options.SUPERVISED`.
      features: the training examples of each language, as rows.
      vocabulary: the vocabulary of the rows.
    """
    rows: dict[str, Rows] = {
        language: {"tokens": part.tokens.astype(vocabulary.dtype), **part.labels}
        for language, part in features.items()
    }
    tasks = tuple(_task(kind, language, part) for language, part in rows.items())
    recipe = {"format": store.FORMAT, "kind": kind}
    manifest = Manifest(vocabulary.size, vocabulary.digest, recipe=recipe, tasks=tasks)
    folder = cache / f"{kind}-{manifest.content_hash[:16]}"
    if not (folder / store.MANIFEST).is_file():
        try:
            with atomic.new_folder(folder) as part:
                for task, task_rows in zip(tasks, rows.values(), strict=True):
                    with atomic.as_config_error(folder):
                        (part / task.name).mkdir()
                    shard = store.shard_file(part / task.folder, 0)
                    atomic.write(shard, row_records.to_records(task_rows, task.fields).tobytes())
                atomic.write(part / store.VOCABULARY, vocabulary.model)
                atomic.write(part / store.MANIFEST, manifest.to_json())
        except ConfigError:
            if not (folder / store.MANIFEST).is_file():  # no other process has written the store
                raise
    return RowStore(folder)


def _task(kind: str, language: str, rows: Rows) -> TaskRows:
    fields = tuple(
        Field(name, array.dtype.str, array.shape[1:], is_text=name == "tokens")
        for name, array in rows.items()
    )
    count, starts = row_records.count(rows), rows["tokens"][:, 0] == BOS
    digest = hashlib.sha256(row_records.to_records(rows, fields).tobytes()).hexdigest()
    return TaskRows(
        name=f"{kind}.{language}",
        folder=f"{kind}.{language}",
        kind=kind,
        languages=(language,),
        length=rows["tokens"].shape[1],
        fields=fields,
        train=Split(
            count,
            row_records.count_tokens(rows, fields),
            int(np.count_nonzero(starts)),
            count,
            digest,
            (count,),
        ),
        held_out=Split.without_rows(shards=1),
    )
