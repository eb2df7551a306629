import dataclasses
from collections import Counter

import ml_collections
import pytest

from xlj.config import ConfigError, parse
from xlj.data.rows.batches import Batches
from xlj.data.rows.preparing import prepare_rows
from xlj.training.passes import passes, warnings, with_steps


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


def test_a_run_takes_the_steps_that_its_passes_need_and_no_fewer_than_asked_for(tiny):
    """The fewest steps with which every kind of rows that the last phase draws is read so often;
    what was drawn before that phase counts."""
    tiny.train.steps, tiny.train.passes = 7, 2.5
    late = {"mmlm": {"batch_rows": 0}, "tlm": {"batch_rows": 8}, "camlm": {"batch_rows": 24}}
    tiny.objectives.tlm.batch_rows = 4
    tiny.phases = ml_collections.ConfigDict({"late": {"start_step": 3, "objectives": late}})
    config = parse(tiny)
    store = prepare_rows(config)
    found = with_steps(config, store)
    assert found.train.passes == 0 and found.train.steps > 7
    kind = config.schedule[-1].config.objectives.active()["camlm"].rows
    assert passes(found, store)[kind] >= 2.5

    def shortened(config, steps):
        return dataclasses.replace(config, train=dataclasses.replace(config.train, steps=steps))

    assert passes(shortened(found, found.train.steps - 1), store)[kind] < 2.5
    assert with_steps(shortened(config, 5_000), store).train.steps == 5_000
    none = dataclasses.replace(config, train=dataclasses.replace(config.train, passes=0.0))
    assert with_steps(none, store) is none
    many = dataclasses.replace(config, train=dataclasses.replace(config.train, passes=1e9))
    with pytest.raises(ConfigError, match="train.passes=1e\\+09 takes .* at most 2,147,483,647"):
        with_steps(many, store)


def test_a_phase_that_reads_its_rows_too_often_is_named_with_the_step_that_would_not(tiny):
    tiny.train.steps, tiny.objectives.mmlm.batch_rows, tiny.objectives.tlm.batch_rows = 9, 1, 0
    late = {"mmlm": {"batch_rows": 0}, "tlm": {"batch_rows": 8}}
    tiny.phases = ml_collections.ConfigDict({"late": {"start_step": 4, "objectives": late}})
    config = parse(tiny)
    store = prepare_rows(config)
    text, pairs = (sum(t.train.rows for t in store.tasks(kind)) for kind in ("text", "pairs"))
    assert warnings(config, store) == []
    first, last = 21 * text, 21 * text + 21 * pairs // 8 + 1
    phases = {"late": {"start_step": first, "objectives": late}}
    train = dataclasses.replace(config.train, steps=last)
    found = warnings(dataclasses.replace(config, phases=phases, train=train), store)
    assert len(found) == 2
    assert f"21 times over its {text:,} rows of text; with phases.late.start_step=" in found[0]
    assert f"start_step={20 * text} it is 20 times" in found[0]
    assert f"rows of pairs in phase late; with train.steps={first + 20 * pairs // 8} it" in found[1]
