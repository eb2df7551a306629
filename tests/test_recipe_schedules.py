"""Recipes in phases have the learning rates, batches and masks of their papers.

The expected values after certain numbers of tokens are computed by hand from the papers. Rows count
as full here. tests/training/test_whole_run.py follows real rows step by step.
"""

import importlib
from math import sqrt

import numpy as np
import pytest

from xlj.config import parse
from xlj.training import duration_steps
from xlj.training.schedule import Schedule, make_lines

pytestmark = pytest.mark.usefixtures("one_device")

B, T = 1e9, 1e12
FALL = 1 - sqrt(0.5)  # share of the learning rate that 1 - sqrt(x) leaves halfway

# Tokens so far, then learning rate, batch rows, row length, mask rate, alpha, rotary bases.
MODERNBERT = [
    (1.5 * B, 4e-4, None, 1024, 0.3, 0.7, (1e4, 1e4)),  # half of the warm-up of 3B
    (60 * B, 8e-4, 4608, 1024, 0.3, 0.7, (1e4, 1e4)),
    (1.71 * T, 8e-4, 4608, 1024, 0.3, 0.7, (1e4, 1e4)),
    (1.72 * T, 3e-4, 576, 8192, 0.3, 0.7, (16e4, 1e4)),
    (1.96 * T, 3e-4, 576, 8192, 0.3, 0.7, (16e4, 1e4)),
    (1.994 * T, 3e-4 * (0.001 + 0.999 * FALL), 576, 8192, 0.3, 0.7, (16e4, 1e4)),
]
MMBERT = [
    (1.5 * B, 4e-4, None, 1024, 0.3, 0.7, (1e4, 1e4)),
    (2.29 * T, 8e-4, 4608, 1024, 0.3, 0.7, (1e4, 1e4)),
    (2.31 * T, 8e-4, 4608, 8192, 0.15, 0.5, (16e4, 16e4)),
    (2.89 * T, 8e-4, 4608, 8192, 0.15, 0.5, (16e4, 16e4)),
    (2.95 * T, 8e-4 * (0.02 + 0.98 * FALL), 4608, 8192, 0.05, 0.3, (16e4, 16e4)),
]
MMBERT_SMALL = [
    (2 * B, 4e-4, None, 1024, 0.3, 0.7, (1e4, 1e4)),  # half of the warm-up of 4B
    (2.29 * T, 8e-4, 4608, 1024, 0.3, 0.7, (1e4, 1e4)),
    (2.31 * T, 4e-4, 4608, 8192, 0.15, 0.5, (16e4, 16e4)),
    (2.95 * T, 4e-4 * (0.04 + 0.96 * 0.5), 4608, 8192, 0.05, 0.3, (16e4, 16e4)),
]
EUROBERT = [
    (4.69 * T, 1e-4, 2048, 2048, 0.5, 0.5, (1e4, 0)),
    (4.85 * T, 5e-5, 512, 8192, 0.1, 0.5, (25e4, 0)),  # halfway through the annealing
]
TABLES = {
    "modernbert_base": MODERNBERT,
    "mmbert_base": MMBERT,
    "mmbert_small": MMBERT_SMALL,
    "eurobert_210m": EUROBERT,
}
WARMUPS = {  # tokens, and the first batch in units of 48 rows
    "modernbert_base": (50 * B, 2),
    "mmbert_base": (60 * B, 1),
    "mmbert_small": (100 * B, 1),
}


def resolved(name, variant=""):
    config = parse(importlib.import_module(name).get_config(variant))
    return duration_steps.resolve(config, None)[0]


def step_after(schedule, tokens):
    """Returns the first step before which the run has read this number of tokens."""
    low, high = 0, schedule.config.train.steps
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if schedule.tokens(0, middle) < tokens else (low, middle)
    return low


@pytest.mark.parametrize("name", TABLES)
def test_a_run_has_the_papers_values_after_certain_numbers_of_tokens(name):
    config = resolved(name)
    schedule = Schedule(config, None)
    for tokens, rate, rows, length, masks, alpha, bases in TABLES[name]:
        step = step_after(schedule, tokens)
        planned = schedule.at(step)
        phase, options = planned.phase, planned.phase.active()["mmlm"]
        model = phase.config.model
        assert planned.rates.learning_rate == pytest.approx(rate, rel=2e-3), tokens
        if rows is not None:
            assert options.batch_size * planned.microbatches // phase.accumulation_steps == rows
        assert (phase.config.data.length, phase.config.data.alpha) == (length, alpha)
        assert options.mask_rate == masks
        assert (model.rotary_base, model.rotary_local_base) == bases


@pytest.mark.parametrize("name", WARMUPS)
def test_batches_grow_by_48_rows_in_proportion_to_tokens(name):
    """Each batch size lasts equally many steps, so it reads tokens in proportion to its rows."""
    config, (tokens, first) = resolved(name), WARMUPS[name]
    schedule = Schedule(config, None)
    units, reached = range(first, 96), 0.0
    for unit in units:
        middle = reached + tokens * unit / sum(units) / 2
        step = step_after(schedule, middle)
        assert 4608 * schedule.at(step).microbatches // 96 == 48 * unit
        reached += tokens * unit / sum(units)
    assert reached == pytest.approx(tokens)
    assert schedule.at(step_after(schedule, 1.001 * tokens)).microbatches == 96


@pytest.mark.parametrize("name, factor", [("mmbert_base", 1.0), ("mmbert_small", 0.5)])
def test_weight_decay_of_mmbert_at_the_peak_is_that_of_the_paper(name, factor):
    """A step at the peak learning rate subtracts 8e-5 of each parameter.

    In mmBERT small it subtracts 4e-5 after the first phase.
    """
    config = resolved(name)
    schedule = Schedule(config, None)
    for tokens, expected in ((1 * T, 8e-5), (2.5 * T, 8e-5 * factor)):
        learning_rate, decay = schedule.at(step_after(schedule, tokens)).rates
        assert learning_rate * decay == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_tiny_run_goes_through_the_same_phases(name, rows_folder):
    """Tests learning rate, mask rate and length of each step against the phases of the recipe."""
    from xlj.data.rows.preparing import prepare_rows

    tiny = importlib.import_module(name).get_config("tiny")
    tiny.data.cache = str(rows_folder)
    config = parse(tiny)
    store = prepare_rows(config)
    all_lines = make_lines(Schedule(config, store), store)
    lines = {line["step"]: line for line in all_lines}
    full = resolved(name).schedule
    starts = [phase.start for phase in config.schedule]
    assert len(starts) == len(full)
    peak = config.optimizer.learning_rate

    def quarters(step):
        """Returns how many quarters of a batch a step of the first phase reads."""
        return min(4, 1 + 3 * step // 40) if config.train.batch_warmup else 4

    whole = sum(map(quarters, range(30)))
    for step, line in lines.items():
        number = sum(start <= step for start in starts) - 1
        options = full[number].active()["mmlm"]
        assert line["mask_rate/mmlm"] == options.mask_rate
        assert line["length/mmlm"] == (64 if number == 0 else 128)
        begin = config.schedule[number].rates_start
        end = config.schedule[number].rates_end
        optimizer = config.schedule[number].config.optimizer
        expected = optimizer.learning_rate
        if number == 0:  # a warm-up of 30 steps; small batches count less
            expected = peak * min(1, sum(map(quarters, range(step + 1))) / whole)
        if optimizer.schedule == "sqrt":
            share = 1 - sqrt((step - begin) / (end - begin))
            expected *= optimizer.floor + (1 - optimizer.floor) * share
        if optimizer.schedule == "linear":
            expected *= optimizer.floor + (1 - optimizer.floor) * (end - step) / (end - begin)
        assert line["learning_rate"] == pytest.approx(expected, rel=1e-5), step
        if not number:
            rows = config.objectives.mmlm.batch_size
            assert line["rows/mmlm"] == rows * quarters(step) // 4
    first_lines = [lines[start] for start in starts]
    for line in first_lines:
        assert sum(v for k, v in line.items() if k.startswith("share/text")) == pytest.approx(
            1, abs=1e-4
        )
    assert np.isfinite([line["tokens"] for line in lines.values()]).all()
