"""A run with damaged rows continues without them, with any objective."""

import shutil

import numpy as np
import pytest

from xlj import config as schema
from xlj.checkpoints import metrics
from xlj.config import parse
from xlj.data.rows.batches import Batches
from xlj.data.rows.preparing import prepare_rows
from xlj.data.rows.store import RowStore
from xlj.training import loop, start


@pytest.mark.extra
def test_a_run_replaces_damaged_rows_by_padding_and_stays_finite(every, tmp_path, capsys, devices):
    devices(1)
    for name in ("distillation", "sentence_distillation", "text_distillation"):
        every.objectives[name] = schema.default().objectives[name]
    every.train.steps = every.train.eval_every = every.train.log_every = 1
    every.train.eval_rows, every.data.damaged_rows = 0, "pad"
    original = prepare_rows(parse(every))
    shutil.copytree(original.path.parent, tmp_path / "cache")
    store = RowStore(tmp_path / "cache" / original.path.name)
    config = parse(every)
    batches = Batches(store, config)
    damaged = {batches.draw(name, 0, np.array([3]))[0] for name in batches.shapes(0)}
    for task, row in damaged:
        rows = store.task(task)
        file = store.file(task, 0)
        content = bytearray(file.read_bytes())
        size = len(content) // (rows.train.rows + rows.held_out.rows)
        content[row * size] ^= 1
        file.write_bytes(content)
    loop.train(start.prepare(config, tmp_path / "run", store))
    assert capsys.readouterr().err.count("padding replaces this row") >= len(batches.shapes(0))
    line = metrics.read(tmp_path / "run")[-1]
    assert line["skipped_steps"] == 0
    assert all(np.isfinite(value) for value in line.values() if isinstance(value, float))
