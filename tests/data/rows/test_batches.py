"""Batches hold the rows that were drawn; a damaged one stops the run, or leaves its slot empty."""

import shutil

import numpy as np
import pytest

from xlj.config import parse
from xlj.data.rows.batches import Batches
from xlj.data.rows.store import RowStore, RowStoreError
from xlj.data.tokenizer.layout import PAD


@pytest.fixture
def copy(store, tmp_path):
    """The rows of `store` in a cache of their own, and a row there to damage by number."""
    shutil.copytree(store.path.parent, tmp_path / "cache")
    copied = RowStore(tmp_path / "cache" / store.path.name)

    def damage(task, row):
        file = copied.file(task, 0)
        content = bytearray(file.read_bytes())
        size = len(content) // (copied.task(task).train.rows + copied.task(task).held_out.rows)
        content[row * size + 5] ^= 4
        file.write_bytes(content)

    return copied, damage


def test_a_batch_has_the_rows_that_are_drawn(tiny, store):
    batches = Batches(store, parse(tiny))
    for step in (0, 3, 400):
        for name in ("mmlm", "tlm"):
            rows, languages = batches.read(name, step, np.arange(16))
            for row, (task, number) in zip(
                rows, batches.draw(name, step, np.arange(16)), strict=True
            ):
                assert np.array_equal(row, store.read(task, "train", np.array([number]))[0])
            some, sides = Batches(store, parse(tiny)).read(name, step, np.array([9, 2]))
            assert np.array_equal(some, rows[[9, 2]]) and np.array_equal(sides, languages[[9, 2]])


def test_a_damaged_row_stops_the_run_or_leaves_its_slot_empty(tiny, copy, capsys):
    store, damage = copy
    whole, _ = Batches(store, parse(tiny)).read("mmlm", 7, np.arange(16))
    task, row = Batches(store, parse(tiny)).draw("mmlm", 7, np.array([11]))[0]
    damage(task, row)
    message = rf"00000\.rows: row {row} is damaged.*delete .*{task}.* xlj\.prepare"
    with pytest.raises(RowStoreError, match=message):
        Batches(store, parse(tiny)).read("mmlm", 7, np.arange(16))
    tiny.data.damaged_rows = "pad"
    batches = Batches(store, parse(tiny))
    found, _ = batches.read("mmlm", 7, np.arange(16))
    assert (found[11] == PAD).all()
    assert np.array_equal(np.delete(found, 11, 0), np.delete(whole, 11, 0))
    others, _ = batches.read("mmlm", 7, np.arange(8))
    assert np.array_equal(others, whole[:8])
    said = capsys.readouterr().err
    assert said.startswith("step 7: ") and f"row {row} is damaged" in said
    assert said.count("its slot is padding") == 1
