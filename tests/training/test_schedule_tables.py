"""Warnings about phases that read their rows too often; test_whole_run.py has lines and tables."""

import dataclasses

import ml_collections

from xlj.config import parse
from xlj.data.rows.preparing import prepare_rows
from xlj.training.schedule import Schedule
from xlj.training.schedule_tables import make_warnings


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
