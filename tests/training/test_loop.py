"""The arguments of steps, the parameters that are evaluated, and the checkpoints of a run."""

import jax
import ml_collections
import numpy as np
import pytest

from xlj.checkpoints import reading, writing
from xlj.config import ConfigError, parse
from xlj.data.rows.store import Corpus
from xlj.distributed.preemption import Interrupted
from xlj.training import loop, resources, start
from xlj.training import state as states
from xlj.training.schedule import Schedule

FALL = {"start_step": 3, "optimizer": {"schedule": "linear"}}
"""A phase in which the learning rate falls."""


@pytest.mark.slow
def test_steps_get_their_rates_and_batch_sizes_and_step_0_evaluates_initial_parameters(
    tiny, store, tmp_path, monkeypatch, devices
):
    """The resumed run continues these numbers and evaluates no step twice."""
    devices(1)
    tiny.objectives.tlm.batch_size, tiny.model.layers = 0, 1
    tiny.optimizer.schedule, tiny.optimizer.warmup_steps = "constant", 6
    tiny.train.keep_checkpoints, tiny.train.best_metric = 1, "eval/x/score"
    tiny.optimizer.weight_decay, tiny.train.seed, tiny.train.eval_every = 0.03, 7, 1
    tiny.train.gradient_accumulation_steps, tiny.train.batch_warmup = 2, 2
    calls, sizes, evaluated = [], [], []

    def call(step, state, batch, seed, rates, filled):
        calls.append((int(state.progress.step), int(seed), rates))
        sizes.append(int(filled))
        return original(step, state, batch, seed, rates, filled)

    def probe(state, check):
        word = np.asarray(state.params["embeddings"]["word"])
        evaluated.append((int(state.progress.step), word))
        return {"eval/x/score": -float(state.progress.step)}

    class Bar(resources.tqdm):
        def close(self):
            bars.append((self.n, self.total))
            super().close()

    bars, original = [], resources.Step.__call__
    monkeypatch.setattr(resources, "tqdm", Bar)
    monkeypatch.setattr(resources.Step, "__call__", call)
    for tiny.train.steps, phases_of_run in ((2, {}), (4, {"fall": FALL})):
        tiny.phases = ml_collections.ConfigDict(phases_of_run)
        config = parse(tiny)
        loop.train(start.prepare(config, tmp_path, store), [probe])
    # The best checkpoint, the one before the rate falls, and the last one.
    assert reading.steps(tmp_path) == [1, 3, 4]
    assert all(count == total > 0 for count, total in bars) and len(bars) >= 2
    assert [number for number, *_ in calls] == [0, 1, 2, 3]
    assert {seed for _, seed, _ in calls} == {7} and sizes == [1, 1, 2, 2]
    schedule = Schedule(config, None)
    assert [each for *_, each in calls] == [schedule.at(number).rates for number in range(4)]
    # The six steps of the warm-up read five full batches, and step 0 reads half a batch.
    np.testing.assert_allclose(calls[0][2], (config.optimizer.learning_rate / 10, 0.03), rtol=1e-6)
    assert [number for number, _ in evaluated] == [0, 1, 2, 3, 4]
    fresh = jax.jit(lambda seed: states.init(config, Corpus.of(store), seed))(np.uint32(7))
    np.testing.assert_array_equal(evaluated[0][1], fresh.params["embeddings"]["word"])
    assert (evaluated[1][1] != evaluated[0][1]).any()


@pytest.mark.parametrize("stop_at, expected", [(0, []), (2, [(1, True), (2, False)])])
def test_a_run_that_stops_in_an_evaluation_saves_the_step_as_not_measured(
    tiny, store, tmp_path, devices, monkeypatch, stop_at, expected
):
    """The evaluation of the initial state follows the first step, of which nothing is saved."""
    devices(1)
    tiny.objectives.tlm.batch_size, tiny.model.layers, tiny.train.eval_rows = 0, 1, 0
    tiny.train.eval_every, tiny.train.best_metric = 1, "eval/x/score"

    def score(state, check):
        if int(state.progress.step) == stop_at:
            raise Interrupted
        return {"eval/x/score": 1.0}

    def save(checkpointer, step, parts, measured, tokens, layer):
        saved.append((step, measured))

    saved = []
    monkeypatch.setattr(writing.Checkpointer, "save", save)
    run = start.prepare(parse(tiny), tmp_path, store)
    outcome = loop.train(run, [score])
    assert (outcome.step, outcome.finished, saved) == (stop_at, False, expected)


def test_a_metric_that_does_not_exist_is_an_error():
    line = {"eval/x/aer": 0.25, "eval/x/agreement": 0.5}
    loop._check_metric(line, "-eval/x/aer")
    loop._check_metric(line, "")
    with pytest.raises(ConfigError, match=r"has no metric eval/x/aet; did you mean eval/x/aer\?"):
        loop._check_metric(line, "-eval/x/aet")
