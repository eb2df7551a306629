"""The arguments that the loop passes to a step, and the parameters that it evaluates."""

import jax
import numpy as np

from xlj.config import parse
from xlj.data.rows.corpus import Corpus
from xlj.optimizers.schedules import rates
from xlj.training import loop, phases, start
from xlj.training import state as states


def test_steps_get_the_rates_and_sizes_of_their_numbers_and_step_0_is_of_the_first_parameters(
    tiny, store, tmp_path, monkeypatch
):
    """Also after a resume, which evaluates no step twice."""
    tiny.objectives.tlm.batch_rows, tiny.model.layers = 0, 1
    tiny.optimizer.schedule, tiny.optimizer.warmup_steps = "constant", 6
    tiny.optimizer.weight_decay, tiny.train.seed, tiny.train.eval_every = 0.03, 7, 1
    tiny.train.accumulation, tiny.train.batch_warmup = 2, 2
    given, sizes, measured = [], [], []

    def call(step, state, batch, seed, rates, filled):
        given.append((int(state.progress.step), int(seed), rates))
        sizes.append(int(filled))
        return original(step, state, batch, seed, rates, filled)

    def probe(state, check):
        word = np.asarray(state.params["embeddings"]["word"])
        measured.append((int(state.progress.step), word))
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
    assert [number for number, *_ in given] == [0, 1, 2, 3]
    assert {seed for _, seed, _ in given} == {7} and sizes == [1, 1, 2, 2]
    assert [each for *_, each in given] == [rates(config, number) for number in range(4)]
    # Half a batch of the five that the warm-up's steps have.
    np.testing.assert_allclose(given[0][2], (config.optimizer.learning_rate / 10, 0.03), rtol=1e-6)
    assert [number for number, _ in measured] == [0, 1, 2, 3, 4]
    fresh = jax.jit(lambda seed: states.init(config, Corpus.of(store), seed))(np.uint32(7))
    np.testing.assert_array_equal(measured[0][1], fresh.params["embeddings"]["word"])
    assert (measured[1][1] != measured[0][1]).any()
