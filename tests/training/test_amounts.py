"""Passes over the rows and tokens in a range of steps, and warnings about too many passes."""

import dataclasses
from collections import Counter

import ml_collections
import numpy as np
import pytest

from xlj.config import parse
from xlj.data.rows.batches import Batches
from xlj.data.rows.preparing import prepare_rows
from xlj.training.amounts import Amounts, StepAmounts, make_warnings


def test_passes_and_tokens_of_steps_equal_those_of_the_batches(tiny):
    """Two objectives read rows of the same kind, one of them only in a later phase. Passes are
    exact. Tokens are expected values, so they only agree approximately."""
    tiny.train.steps = 40
    late = {"tlm": {"batch_size": 8}, "camlm": {"batch_size": 24}}
    change = {"start_step": 25, "objectives": late}
    tiny.phases = ml_collections.ConfigDict({"late": change})
    config = parse(tiny)
    store = prepare_rows(config)
    batches, amounts = Batches(store, config), Amounts(config, StepAmounts(store))
    available = Counter()
    for task in store.manifest.tasks:
        available[task.kind] += task.train.rows
    for begin, end in ((0, 40), (20, 30)):
        drawn, tokens = Counter(), 0
        for step in range(begin, end):
            for name, (rows, _) in batches.shapes(step).items():
                slots = np.arange(rows)
                kind = config.objectives_on()[name].rows
                drawn[kind] += len(batches.draw(name, step, slots))
                tokens += batches.tokens(name, batches.read(name, step, slots))
        expected = {kind: rows / available[kind] for kind, rows in drawn.items()}
        assert amounts.passes(begin, end) == pytest.approx(expected) and len(expected) == 2
        assert amounts.tokens(begin, end) == pytest.approx(tokens, rel=0.02)


def test_a_phase_with_too_many_passes_is_reported_with_a_step_that_avoids_them(tiny):
    tiny.train.steps, tiny.objectives.mmlm.batch_size, tiny.objectives.tlm.batch_size = 9, 1, 0
    late = {"mmlm": {"batch_size": 0}, "tlm": {"batch_size": 8}}
    tiny.phases = ml_collections.ConfigDict({"late": {"start_step": 4, "objectives": late}})
    config = parse(tiny)
    store = prepare_rows(config)
    text, pairs = (sum(t.train.rows for t in store.tasks(kind)) for kind in ("text", "pairs"))
    assert make_warnings(config, store) == []
    first, last = 21 * text, 21 * text + 21 * pairs // 8 + 1
    phases = {"late": {"start_step": first, "objectives": late}}
    train = dataclasses.replace(config.train, steps=last)
    warnings = make_warnings(dataclasses.replace(config, phases=phases, train=train), store)
    assert len(warnings) == 2
    line = f"reads its {text:,} rows of text 21 times. Add text, or set phases.late.start_step="
    assert line in warnings[0]
    assert f"start_step={20 * text} to read them 20 times" in warnings[0]
    assert "times in phase late. Add text, or set " in warnings[1]
    assert f"set train.steps={first + 20 * pairs // 8} to read" in warnings[1]
