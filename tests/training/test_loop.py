"""The arguments that the loop passes to a step, and the parameters that it evaluates."""

import jax
import numpy as np

from xlj.config import parse
from xlj.data.rows.corpus import Corpus
from xlj.optimizers.schedules import rates
from xlj.training import loop, phases, start
from xlj.training import state as states


def test_steps_get_their_rates_and_batch_sizes_and_step_0_evaluates_initial_parameters(
    tiny, store, tmp_path, monkeypatch, devices
):
    """The resumed run continues these numbers and evaluates no step twice."""
    devices(1)
    tiny.objectives.tlm.batch_size, tiny.model.layers = 0, 1
    tiny.optimizer.schedule, tiny.optimizer.warmup_steps = "constant", 6
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
        return {}

    class Bar(loop.tqdm):
        def close(self):
            bars.append((self.n, self.total))
            super().close()

    bars, original = [], phases.Step.__call__
    monkeypatch.setattr(loop, "tqdm", Bar)
    monkeypatch.setattr(phases.Step, "__call__", call)
    for tiny.train.steps in (2, 4):
        config = parse(tiny)
        loop.train(start.prepare(config, tmp_path, store), [probe])
    assert all(count == total > 0 for count, total in bars) and len(bars) >= 2
    assert [number for number, *_ in calls] == [0, 1, 2, 3]
    assert {seed for _, seed, _ in calls} == {7} and sizes == [1, 1, 2, 2]
    assert [each for *_, each in calls] == [rates(config, number) for number in range(4)]
    # The six steps of the warm-up read five full batches, and step 0 reads half a batch.
    np.testing.assert_allclose(calls[0][2], (config.optimizer.learning_rate / 10, 0.03), rtol=1e-6)
    assert [number for number, _ in evaluated] == [0, 1, 2, 3, 4]
    fresh = jax.jit(lambda seed: states.init(config, Corpus.of(store), seed))(np.uint32(7))
    np.testing.assert_array_equal(evaluated[0][1], fresh.params["embeddings"]["word"])
    assert (evaluated[1][1] != evaluated[0][1]).any()
