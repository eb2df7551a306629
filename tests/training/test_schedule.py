"""Rates, microbatches and tokens of whole runs, against hand-computed tables and batches.

Also warnings about phases that read their rows too often; test_whole_run.py has lines and tables.
"""

import dataclasses
from collections import Counter

import ml_collections
import numpy as np
import pytest

from xlj.checkpoints.compatibility import decay_start, pre_decay_steps
from xlj.config import Config, Optimizer, Train, as_tree, parse
from xlj.data.rows.batches import Batches
from xlj.data.rows.preparing import prepare_rows
from xlj.training.schedule import Schedule, make_warnings


@pytest.mark.parametrize(
    "options, expected",
    [
        # The rate rises for 3 steps, then falls from the peak in step 3 by a fifth per step, to 0.
        ({"schedule": "linear"}, [10, 20, 30, 30, 24, 18, 12, 6, 0]),
        ({"schedule": "linear", "warmup_steps": 0}, [30 - 3.75 * step for step in range(9)]),
        ({"schedule": "constant"}, [10, 20, 30, 30, 30, 30, 30, 30, 30]),
        ({"schedule": "constant", "warmup_steps": 1}, [30] * 9),
        # The last 3 of 8 steps fall: step 5 still has the peak.
        ({"schedule": "wsd", "decay_steps": 3}, [10, 20, 30, 30, 30, 30, 20, 10, 0]),
        ({"schedule": "wsd", "decay_steps": 6}, [10, 20, 30, 25, 20, 15, 10, 5, 0]),
        # Down to a tenth of the peak: 30 - 27 x after the share x of the fall.
        ({"schedule": "linear", "floor": 0.1}, [10, 20, 30, 30, 24.6, 19.2, 13.8, 8.4, 3]),
        # Half a cosine over four steps, from 30 to 6.
        (
            {"schedule": "cosine", "warmup_steps": 4, "floor": 0.2},
            [7.5, 15, 22.5, 30, 30, 18 + 12 * 0.5**0.5, 18, 18 - 12 * 0.5**0.5, 6],
        ),
        # 1 - sqrt(x) at x = 0, 1/4, 1/2, 3/4, 1 of the last four steps: half is lost in the first.
        (
            {"schedule": "wsd", "decay_steps": 4, "decay": "sqrt", "warmup_steps": 0},
            [30, 30, 30, 30, 30, 15, 30 - 30 * 0.5**0.5, 30 - 15 * 3**0.5, 0],
        ),
        (
            {"schedule": "sqrt", "warmup_steps": 4, "floor": 0.5},
            [7.5, 15, 22.5, 30, 30, 22.5, 30 - 15 * 0.5**0.5, 30 - 7.5 * 3**0.5, 15],
        ),
    ],
)
def test_learning_rate_of_every_step_of_a_run(options, expected):
    optimizer = Optimizer(**{"learning_rate": 30.0, "warmup_steps": 3} | options)
    config = Config(optimizer=optimizer, train=Train(steps=8))
    schedule = Schedule(config, None)
    actual = [schedule.learning_rate(step) for step in range(9)]
    assert {each.dtype for each in actual} == {np.dtype(np.float32)}
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(schedule.learning_rate(np.arange(9)), actual)


def test_learning_rate_of_every_step_of_a_run_in_phases():
    """The phases are: a warm-up and a constant rate; a lower peak, which does not restart the
    schedule; a schedule with its own warm-up, constant rate and decay; and a fall to a tenth."""
    phases = {
        "lower": {"start_step": 4, "optimizer": {"learning_rate": 20.0, "weight_decay": 0.5}},
        "again": {
            "start_step": 6,
            "optimizer": {"schedule": "wsd", "warmup_steps": 2, "decay_steps": 2},
        },
        "alpha": {"start_step": 9, "data": {"alpha": 0.3}},
        "last": {
            "start_step": 12,
            "optimizer": {
                "schedule": "sqrt", "warmup_steps": 0, "floor": 0.1, "learning_rate": 100.0,
            },
        },
    }  # fmt: skip
    optimizer = Optimizer(
        learning_rate=30.0, schedule="constant", warmup_steps=3, weight_decay=0.25
    )
    config = Config(optimizer=optimizer, train=Train(steps=16), phases=phases)
    expected = [10, 20, 30, 30, 20, 20, 10, 20, 20, 20, 20, 10]
    expected += [100, 55, 100 - 90 * 0.5**0.5, 100 - 45 * 3**0.5]
    schedule = Schedule(config, None)
    actual = [schedule.at(step).rates for step in range(16)]
    np.testing.assert_allclose([each.learning_rate for each in actual], expected, rtol=1e-6)
    assert [each.weight_decay for each in actual] == [0.25] * 4 + [0.5] * 12
    np.testing.assert_array_equal(
        schedule.learning_rate(np.arange(16)), [each.learning_rate for each in actual]
    )
    # The checkpoint before each decay is kept; that of step 12 is the last.
    assert pre_decay_steps(config, ()) == (10, 12) and decay_start(as_tree(config)) == 12


def test_a_phase_that_sets_the_same_schedule_restarts_it():
    phases = {"again": {"start_step": 4, "optimizer": {"schedule": "linear"}}}
    optimizer = Optimizer(learning_rate=8.0, schedule="linear")
    config = Config(optimizer=optimizer, train=Train(steps=8), phases=phases)
    np.testing.assert_allclose(Schedule(config, None).learning_rate(np.arange(8)), [8, 6, 4, 2] * 2)


def test_passes_and_tokens_of_steps_equal_those_of_the_batches(tiny):
    """Two objectives read rows of the same kind, one of them only in a later phase. Passes are
    exact. Tokens are expected values, so they only agree approximately."""
    tiny.train.steps = 40
    late = {"tlm": {"batch_size": 8}, "camlm": {"batch_size": 24}}
    change = {"start_step": 25, "objectives": late}
    tiny.phases = ml_collections.ConfigDict({"late": change})
    config = parse(tiny)
    store = prepare_rows(config)
    batches, schedule = Batches(store, config), Schedule(config, store)
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
        assert schedule.passes(begin, end) == pytest.approx(expected) and len(expected) == 2
        assert schedule.tokens(begin, end) == pytest.approx(tokens, rel=0.02)


def test_a_step_has_a_phase_microbatches_and_the_tokens_before_it(tiny):
    """Batches have one of two microbatches for four steps, then both; the last phase divides its
    rows into four. Without a batch warm-up, the program gets no number of filled microbatches."""
    tiny.train.steps, tiny.train.gradient_accumulation_steps, tiny.objectives.tlm.batch_size = (
        8,
        2,
        0,
    )
    late = {
        "start_step": 6,
        "train": {"gradient_accumulation_steps": 4},
        "objectives": {"mmlm": {"weight": 2.0}},
    }
    tiny.phases = ml_collections.ConfigDict({"late": late})
    full = tiny.objectives.mmlm.batch_size * tiny.data.length
    whole = [Schedule(parse(tiny), None).at(step) for step in range(9)]
    assert [(each.microbatches, each.filled) for each in whole[4:7]] == [
        (2, None),
        (2, None),
        (4, None),
    ]
    tiny.train.batch_warmup = 4
    steps = [Schedule(parse(tiny), None).at(step) for step in range(9)]
    assert [each.phase.name for each in steps] == [""] * 6 + ["late"] * 3
    assert [each.microbatches for each in steps] == [1, 1, 1, 1, 2, 2, 4, 4, 4]
    assert [each.filled for each in steps] == [each.microbatches for each in steps]
    assert {type(each.filled) for each in steps} == {np.int32}
    assert [each.tokens / full for each in steps] == [0, 0.5, 1, 1.5, 2, 3, 4, 5, 6]


def test_a_phase_with_too_many_passes_is_reported_with_a_step_that_avoids_them(tiny):
    tiny.train.steps, tiny.objectives.mmlm.batch_size, tiny.objectives.tlm.batch_size = 9, 1, 0
    late = {"mmlm": {"batch_size": 0}, "tlm": {"batch_size": 8}}
    tiny.phases = ml_collections.ConfigDict({"late": {"start_step": 4, "objectives": late}})
    config = parse(tiny)
    store = prepare_rows(config)
    text, pairs = (sum(t.train.rows for t in store.tasks(kind)) for kind in ("text", "pairs"))
    assert make_warnings(Schedule(config, store), store) == []
    first, last = 21 * text, 21 * text + 21 * pairs // 8 + 1
    phases = {"late": {"start_step": first, "objectives": late}}
    train = dataclasses.replace(config.train, steps=last)
    config = dataclasses.replace(config, phases=phases, train=train)
    warnings = make_warnings(Schedule(config, store), store)
    assert len(warnings) == 2
    line = f"reads its {text:,} rows of text 21 times. Add text, or set phases.late.start_step="
    assert line in warnings[0]
    assert f"start_step={20 * text} to read them 20 times" in warnings[0]
    assert "times in phase late. Add text, or set " in warnings[1]
    assert f"set train.steps={first + 20 * pairs // 8} to read" in warnings[1]
