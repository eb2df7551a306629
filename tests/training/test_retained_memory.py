"""A run retains the memory of its steps on CPUs."""

import contextlib

import pytest

from xlj.api import runs
from xlj.checkpoints import writing
from xlj.config import parse
from xlj.io.own_process import StepMemory
from xlj.sharding import devices
from xlj.training import loop, resources, start


@pytest.mark.slow
def test_a_run_retains_memory_between_steps_and_releases_it_before_other_work(
    tiny, store, tmp_path, monkeypatch
):
    events = []

    class Memory(StepMemory):
        def __init__(self, on_cpu):
            assert on_cpu

        @contextlib.contextmanager
        def retain(self):
            events.append("retained")
            yield
            events.append("done")

        def release(self):
            events.append("released")

        close = release

    def evaluate(state, check):
        events.append("evaluated")
        return {}

    def save(*arguments, **options):
        events.append("saved")

    monkeypatch.setattr(resources, "StepMemory", Memory)
    monkeypatch.setattr(resources, "Evaluation", lambda *arguments: evaluate)
    monkeypatch.setattr(writing.Checkpointer, "save", save)
    tiny.train.steps, tiny.train.checkpoint_every = 4, 3
    tiny.train.log_every, tiny.train.eval_every = 3, 2
    loop.train(start.prepare(parse(tiny), tmp_path, store))
    step, released = ["retained", "done"], "released"
    assert events == [
        # The initial state is evaluated after the first step.
        *(*step, released, "evaluated", *step, released, "evaluated"),
        *(*step, released, released, "saved"),
        *(*step, released, "evaluated", released, "saved", released),
    ]


@pytest.mark.parametrize("start_run", [runs.pretrain, runs.fine_tune])
def test_runs_compute_in_the_thread_whose_memory_is_retained(start_run, tmp_path, monkeypatch):
    class Called(Exception):
        """Raised by the replaced function."""

    def raise_called():
        raise Called

    monkeypatch.setattr(devices, "compute_in_the_calling_thread", raise_called)
    with pytest.raises(Called):
        start_run(None, tmp_path)
