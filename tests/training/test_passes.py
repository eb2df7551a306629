from collections import Counter

import ml_collections
import pytest

from xlj.config import parse
from xlj.data.rows.batches import Batches
from xlj.data.rows.preparing import prepare_rows
from xlj.training.passes import passes


def test_passes_are_the_rows_of_all_batches_over_those_there_are(tiny):
    """Of two objectives on rows of one kind, one of them in a later phase only."""
    tiny.train.steps = 7
    late = {"tlm": {"batch_rows": 8}, "camlm": {"batch_rows": 24}}
    change = {"start_step": 3, "objectives": late}
    tiny.phases = ml_collections.ConfigDict({"late": change})
    config = parse(tiny)
    store = prepare_rows(config)
    batches, drawn = Batches(store, config), Counter()
    for step in range(7):
        for name, (rows, _) in batches.shapes(step).items():
            drawn[config.objectives_on()[name].rows] += rows
    there = Counter()
    for task in store.manifest.tasks:
        there[task.kind] += task.train.rows
    wanted = {kind: rows / there[kind] for kind, rows in drawn.items()}
    assert passes(config, store) == pytest.approx(wanted) and len(wanted) == 2
