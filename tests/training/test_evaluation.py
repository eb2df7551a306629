"""Evaluation: means over languages, masks of rows, losses with perplexities, and stopping."""

import copy
import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.config import parse
from xlj.data.rows.store import Corpus
from xlj.data.tokenizer.layout import PAD
from xlj.io.hashing import sample
from xlj.objectives.objective import Loss, LossSums, Objective, build_all
from xlj.sharding import meshes
from xlj.training import evaluation, state
from xlj.training.evaluation import Evaluation
from xlj.training.step import row_rngs

pytestmark = pytest.mark.usefixtures("one_device")

OVER_VOCABULARY = {"mmlm", "tlm", "camlm", "btmlm", "mrtd_generator", "trtd_generator", "dwa_tlm"}
OTHER_LOSSES = {
    "mrtd_discriminator",
    "trtd_discriminator",
    "dwa_align",
    "xlco",
    "retrieval",
    "contrast",
    "contrast_shared",
    "contrast_guarded",
    "distillation",
    "sentence_distillation",
    "text_distillation",
    "word_hmm",
    "word_hmm_normaliser",
    "word_agreement",
    "word_agreement_consistency",
}


def test_losses_over_the_vocabulary_are_marked(every):
    objectives = build_all(parse(every), Corpus(400, ("en", "de", "sw"), (1, 1, 1)))
    losses = {
        name: loss for objective in objectives.values() for name, loss in objective.losses.items()
    }
    assert {name for name, loss in losses.items() if loss.over_vocabulary} == OVER_VOCABULARY
    assert losses.keys() == OVER_VOCABULARY | OTHER_LOSSES


def with_an_empty_language(store):
    """Returns the store with one more language, which has no held-out rows."""
    task = store.tasks("text")[0]
    empty = dataclasses.replace(task, held_out=dataclasses.replace(task.held_out, rows=0))
    store = copy.copy(store)
    tasks = (*store.manifest.tasks, empty)
    store.manifest = dataclasses.replace(store.manifest, tasks=tasks)
    return store


def test_each_row_has_its_own_masks_and_each_language_has_the_same_weight(tiny, store):
    """The summed loss of a row is a random number from its key, for all tokens of the row."""

    def loss(params, objective_state, inputs, rngs):
        rows, keys = inputs
        numbers = jax.vmap(jax.random.uniform)(keys)
        counts = (rows["tokens"] != PAD).sum(1).astype(jnp.float32)
        return {"mmlm": LossSums(sum=numbers, count=counts, correct=numbers / 2)}

    tiny.objectives.tlm.batch_size, tiny.objectives.mmlm.batch_size = 0, 8
    tiny.train.eval_rows = 19  # per language: several batches
    config = parse(tiny)
    objective = Objective(
        losses={"mmlm": Loss(1.0)}, corrupt=lambda rows, rngs: (rows, rngs), count=None,
        loss=loss, parts={}, targets=lambda params, objective_state, inputs, _: inputs,
    )  # fmt: skip
    evaluation = Evaluation(
        with_an_empty_language(store), config, {"mmlm": objective}, meshes.make_mesh(config)
    )
    measures = evaluation(SimpleNamespace(params={}, objectives={}, average={}))
    expected, start = {}, 0
    for task in store.tasks("text"):
        count = min(task.held_out.rows, 19)
        tokens = store.read(task.name, "held_out", sample(count, task.held_out.rows))["tokens"]
        keys = row_rngs(0, "mmlm/evaluation", 0, jnp.arange(start, start + count))
        total = np.asarray(jax.vmap(jax.random.uniform)(keys)).sum()
        expected[task.name.partition(".")[2]] = total / np.count_nonzero(tokens != PAD)
        start += count
    assert len(expected) == 3 and start > 2 * 8
    for language, mean in expected.items():
        assert measures[f"eval/mmlm/{language}/loss"] == pytest.approx(mean, rel=1e-5)
        assert measures[f"eval/mmlm/{language}/accuracy"] == pytest.approx(mean / 2, rel=1e-5)
    assert measures["eval/mmlm/loss"] == pytest.approx(np.mean([*expected.values()]), rel=1e-5)


def test_an_evaluation_can_be_stopped_before_each_batch(tiny, store):
    config, corpus = parse(tiny), Corpus.of(store)
    evaluation = Evaluation(store, config, build_all(config, corpus), meshes.make_mesh(config))
    checks = []
    fresh = jax.jit(lambda: state.init(config, corpus, 0))()
    evaluation(fresh, lambda: checks.append(1))
    rows = {
        kind: sum(min(8, t.held_out.rows) for t in store.tasks(kind)) for kind in ("text", "pairs")
    }
    assert len(checks) == sum(-(-count // 16) for count in rows.values()) > 2


def test_languages_are_in_the_order_of_their_rows_and_those_without_predictions_are_left_out():
    sums = LossSums(np.array([2.0, 6.0, 1.0, 5.0]), np.array([1, 2, 0, 4]), np.array([1, 1, 0, 2]))
    metrics = evaluation._by_language("mmlm", sums, ["sw", "de", "fr", "sw"])
    assert list(metrics.items()) == [
        ("eval/mmlm/sw/loss", 1.4),
        ("eval/mmlm/de/loss", 3.0),
        ("eval/mmlm/loss", 2.2),
        ("eval/mmlm/sw/accuracy", 0.6),
        ("eval/mmlm/de/accuracy", 0.5),
        ("eval/mmlm/accuracy", 0.55),
    ]
    none = LossSums(np.zeros(2), np.zeros(2, int), np.zeros(2))
    assert evaluation._by_language("mmlm", none, ["sw", "de"]) == {}
