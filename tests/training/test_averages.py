"""The average of the parameters of a run is evaluated, saved, and loaded like a model."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.checkpoints import compatibility, reading, stored_models
from xlj.checkpoints.reading import CheckpointError
from xlj.checkpoints.writing import Checkpointer
from xlj.config import parse
from xlj.data.rows.store import Corpus
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.sharding import meshes
from xlj.sharding.trees import named_leaves
from xlj.training import initialisation, loop, start
from xlj.training import state as states

pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture
def workdir(tiny, store, tmp_path):
    """A workdir with a checkpoint whose average is twice its parameters."""
    tiny.optimizer.average = 0.9
    config = parse(tiny)
    state = jax.jit(lambda: states.init(config, Corpus.of(store), 0))()
    for param, average in zip(*map(jax.tree.leaves, (state.params, state.average)), strict=True):
        assert (param == average).all()  # before the first step
    state = dataclasses.replace(state, average=jax.tree.map(lambda x: 2 * x, state.params))
    vocabulary = Vocabulary.load(store.vocabulary_file)
    checkpointer = Checkpointer(tmp_path / "run", config, store.manifest, vocabulary, keep=1)
    checkpointer.save(3, state.items())
    checkpointer.close()
    return tmp_path / "run"


@pytest.mark.slow
def test_an_average_is_loaded_as_a_model_by_its_path(workdir, tiny, tmp_path):
    tiny.optimizer.average = 0.0
    model = stored_models.find(workdir)
    params = named_leaves(model.params(meshes.one_device()))
    expected = {name: 2 * np.asarray(leaf) for name, leaf in params.items()}
    for path in (workdir / "average", workdir / "checkpoints/3/average"):
        average = stored_models.find(path)
        assert average.folder == workdir / "checkpoints/3/average"
        assert average.digest() != model.digest()
        leaves = named_leaves(average.params(meshes.one_device()))
        for name in expected:
            np.testing.assert_array_equal(leaves[name], expected[name])
    np.testing.assert_array_equal(average.leaves["embeddings/word"], expected["embeddings/word"])
    tiny.init_from, tiny.optimizer.average = str(workdir / "average"), 0.5
    run = start.prepare(parse(tiny), tmp_path / "next")
    abstract = states.abstract(run.config, Corpus.of(run.store), run.mesh)
    first = initialisation.first_state(run, abstract)
    for tree in (first.params, first.average):
        for name, leaf in named_leaves(tree).items():
            np.testing.assert_array_equal(leaf, expected[name])
    jax.block_until_ready(jax.jit(lambda s: s, donate_argnums=0)(first))


def test_loading_the_average_of_a_checkpoint_that_has_none_is_an_error(checkpoint):
    with pytest.raises(
        CheckpointError, match="contains no moving average of parameters; remove average"
    ):
        stored_models.find(checkpoint / "average")


def test_a_workdir_may_be_called_average(workdir):
    workdir.rename(workdir.with_name("average"))
    model = stored_models.find(workdir.with_name("average"))
    assert model.folder == workdir.with_name("average") / "checkpoints/3"


def test_a_resumed_run_cannot_change_its_average(workdir, tiny):
    tiny.optimizer.average = 0.99
    with pytest.raises(CheckpointError, match="optimizer.average: 0.9 -> 0.99") as error:
        compatibility.check_resumable(reading.latest(workdir), parse(tiny))
    assert "allow_change" not in str(error.value)


@pytest.mark.slow
def test_a_run_evaluates_its_average(tiny, store, tmp_path):
    tiny.optimizer.average, tiny.train.steps = 0.8, 6
    tiny.evaluation.perplexity = True
    outcome = loop.train(start.prepare(parse(tiny), tmp_path, store))
    lines = {line["step"]: line for line in outcome.metrics}
    keys = {key for key in lines[6] if key.startswith("average/")}
    measures = ("loss", "accuracy", "perplexity")
    assert keys == {f"average/{name}/{key}" for name in ("mmlm", "tlm") for key in measures}
    for name in ("mmlm", "tlm"):
        now, average = (lines[6][f"{kind}/{name}/loss"] for kind in ("eval", "average"))
        before = lines[0][f"eval/{name}/loss"]
        assert lines[0][f"average/{name}/loss"] == before
        assert now < average < before  # the average lags behind the parameters
    model = stored_models.find(tmp_path / "average")
    last_params = named_leaves(reading.restore_params(reading.find(tmp_path), meshes.one_device()))
    average_params = named_leaves(model.params(meshes.one_device()))
    assert not any(jnp.array_equal(average_params[name], last_params[name]) for name in last_params)
