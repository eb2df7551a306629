"""The step of a phase is compiled once, also with evaluations and checkpoints between steps."""

import dataclasses

import jax
import ml_collections
import numpy as np
import pytest

from xlj.config import parse
from xlj.data.rows.store import Corpus
from xlj.distributed.preemption import Interrupted
from xlj.sharding import meshes
from xlj.training import loop, resources, start
from xlj.training import state as states
from xlj.training.schedule import Schedule

pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture
def steps_of_runs(monkeypatch):
    """A list that gets the jitted steps of each call of `train`, by phase."""
    result = []

    def jitted_steps(*arguments):
        result.append(original(*arguments))
        return result[-1]

    original = resources.jitted_steps
    monkeypatch.setattr(resources, "jitted_steps", jitted_steps)
    return result


@pytest.mark.slow
def test_each_run_compiles_a_phase_once_despite_evaluations_and_checkpoints(
    tiny, store, tmp_path, steps_of_runs, monkeypatch
):
    """A compiled program refuses a state with another sharding. `restart_sums`, a restored
    checkpoint or a batch could produce one."""
    compiled = 0

    def compile_step(step, *arguments):
        nonlocal compiled
        compiled += 1
        original(step, *arguments)

    original = resources.Step.compile
    monkeypatch.setattr(resources.Step, "compile", compile_step)
    tiny.objectives.tlm.batch_size = 0
    tiny.model.layers = 1
    tiny.phases = ml_collections.ConfigDict(
        {"late": {"start_step": 6, "objectives": {"mmlm": {"weight": 2.0}}}}
    )
    tiny.train.steps = 9
    tiny.train.eval_every = 2
    tiny.train.gradient_accumulation_steps, tiny.train.batch_warmup = 2, 3  # batches of two sizes
    config = parse(tiny)

    def stop_at_4(state, check):
        if int(state.progress.step) == 4:
            raise Interrupted
        return {}

    stopped = loop.train(start.prepare(config, tmp_path, store), [stop_at_4])
    assert (stopped.step, stopped.finished) == (4, False)
    resumed = loop.train(start.prepare(config, tmp_path, store))
    assert (resumed.step, resumed.finished) == (9, True)
    assert [[step.program is not None for step in steps.values()] for steps in steps_of_runs] == [
        [True, False],
        [True, True],
    ]
    assert compiled == 3


@pytest.mark.slow
def test_runs_of_a_sweep_share_their_programs(tiny, store, tmp_path):
    """The runs differ only in arguments of the program, so XLA finds it in its cache."""
    tiny.objectives.tlm.batch_size = 0
    tiny.model.layers = 1
    config = parse(tiny)
    corpus, mesh = Corpus.of(store), meshes.make_mesh(config, jax.devices()[:1])

    def texts(config):
        sharding = states.sharding(config, corpus, mesh)
        state = states.abstract(config, corpus, mesh)
        (step,) = resources.jitted_steps(config, corpus, mesh, sharding).values()
        batch = resources.abstract_batch(config.objectives_on(), {"mmlm": (16, 32)}, "<u2", mesh)
        seed = np.uint32(config.train.seed)
        init = states.jitted_init(config, corpus, mesh, sharding).lower(seed)
        lowered = step.lower(state, batch, seed, Schedule(config, None).at(0).rates)
        return init.as_text(), lowered.as_text()

    optimizer = dataclasses.replace(
        config.optimizer,
        learning_rate=0.5,
        weight_decay=0.0,
        warmup_steps=7,
        schedule="wsd",
        decay_steps=3,
    )
    train = dataclasses.replace(config.train, seed=9, steps=config.train.steps + 11)
    other = dataclasses.replace(config, optimizer=optimizer, train=train)
    assert texts(other) == texts(config)
    betas = dataclasses.replace(config.optimizer, b1=0.5)
    assert texts(dataclasses.replace(config, optimizer=betas))[1] != texts(config)[1]
