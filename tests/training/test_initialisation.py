"""Where a run begins: what it takes from another checkpoint, and what it refuses to go on from."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import chex
import jax
import pytest

from xlj.config import parse
from xlj.data.rows.preparing import prepare_rows
from xlj.training import checkpoints, initialisation, loop, partitioning, state
from xlj.training.checkpoints import CheckpointError
from xlj.training.partitioning import named_leaves


def first_state(config, store, workdir):
    mesh = partitioning.make_mesh(config, jax.devices()[:1])
    abstract = state.abstract(config, initialisation.Corpus.of(store), mesh)
    return initialisation.first_state(config, checkpoints.latest(workdir), store, abstract)


@pytest.fixture
def trained(tiny, store, tmp_path):
    """The workdir of two steps of MMLM and TLM."""
    tiny.train.steps = 2
    tiny.optimizer.learning_rate = 0.1
    loop.train(parse(tiny), tmp_path / "trained", store)
    return tmp_path / "trained"


def test_another_recipe_takes_the_encoder_and_says_what_is_new(tiny, trained, tmp_path, capsys):
    tiny.objectives.mmlm.batch_rows = tiny.objectives.tlm.batch_rows = 0
    for name in ("dwa", "xlco", "camlm"):
        tiny.objectives[name].batch_rows = 8
    tiny.objectives.xlco.queue, tiny.objectives.distillation.batch_rows = 16, 8
    tiny.objectives.distillation.teacher = str(trained)
    tiny.model.language_embeddings = "predicted"
    tiny.init_from = str(trained)
    config = initialisation.adopt_vocabulary(parse(tiny))
    made = first_state(config, prepare_rows(config), tmp_path / "next")
    said = capsys.readouterr().out
    assert "initialised anew" in said and "pointer_head/query/kernel" in said
    assert "embeddings/language" in said and "embeddings/word" not in said
    mesh = partitioning.make_mesh(config, jax.devices()[:1])
    old = named_leaves(checkpoints.restore_params(checkpoints.find(trained), mesh))
    new = named_leaves(made.params)
    chex.assert_trees_all_equal({name: new[name] for name in old}, old)
    for kept in (made.objectives["xlco"]["momentum"], made.objectives["distillation"]["teacher"]):
        taken = {name: leaf for name, leaf in named_leaves(kept).items() if name in old}
        chex.assert_trees_all_equal(taken, {n: old[n][: len(leaf)] for n, leaf in taken.items()})
    jax.block_until_ready(jax.jit(lambda s: s, donate_argnums=0)(made))  # no buffer stands twice


def test_a_head_that_the_new_recipe_lacks_is_named(tiny, trained, tmp_path, capsys):
    tiny.objectives.mmlm.batch_rows = tiny.objectives.tlm.batch_rows = 0
    tiny.objectives.trtd.batch_rows, tiny.model.generator_layers = 8, 1
    tiny.init_from = str(trained)
    config = initialisation.adopt_vocabulary(parse(tiny))
    first_state(config, prepare_rows(config), tmp_path / "next")
    said = capsys.readouterr().out
    assert "not used: prediction_head/bias" in said and "generator/layers" in said


def test_the_vocabulary_is_written_once_and_by_the_first_process(tiny, trained, monkeypatch):
    tiny.init_from = str(trained)
    path = Path(initialisation.adopt_vocabulary(parse(tiny)).data.vocabulary)
    written = path.stat().st_mtime_ns
    initialisation.adopt_vocabulary(parse(tiny))
    assert path.stat().st_mtime_ns == written
    path.write_bytes(b"cut short")
    waited = []
    with monkeypatch.context() as second:
        processes = SimpleNamespace(process_index=lambda: 1, process_count=lambda: 2)
        second.setattr(initialisation, "jax", processes)  # only there: Orbax asks it too
        second.setattr(initialisation.multihost_utils, "sync_global_devices", waited.append)
        initialisation.adopt_vocabulary(parse(tiny))
    assert path.read_bytes() == b"cut short" and waited == ["vocabulary"]
    initialisation.adopt_vocabulary(parse(tiny))
    assert path.read_bytes() != b"cut short"


def test_another_size_is_refused(tiny, trained):
    tiny.init_from, tiny.model.layers = str(trained), 3
    with pytest.raises(CheckpointError, match=r"another model: model\.layers: 2, now 3"):
        initialisation.adopt_vocabulary(parse(tiny))


def test_other_rows_are_refused_by_name(tiny, trained, store):
    tiny.data.pair_length = 40
    other = prepare_rows(parse(tiny))
    with pytest.raises(CheckpointError, match=r"rows of pairs\.en-de: other; rows of pairs\.en-sw"):
        loop.train(parse(tiny), trained, other)


def decaying(tiny, steps):
    tiny.train.steps, tiny.train.checkpoint_every, tiny.train.keep_checkpoints = steps, 1, 1
    tiny.optimizer.schedule, tiny.optimizer.decay_steps = "wsd", 2
    return parse(tiny)


@pytest.mark.slow
def test_a_run_goes_on_from_before_its_decay_only(tiny, store, tmp_path):
    run = tmp_path / "run"
    loop.train(decaying(tiny, 5), run, store)
    assert checkpoints.steps(run) == [3, 5]
    with pytest.raises(CheckpointError, match="in the decay of a run of 5 steps.*checkpoints/3"):
        initialisation.check_resumable(decaying(tiny, 8), run)
    # As the message says: from the checkpoint before the decay, in another workdir.
    longer = tmp_path / "longer"
    (longer / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "3").rename(longer / "checkpoints" / "3")
    loop.train(decaying(tiny, 8), longer, store)
    assert checkpoints.steps(longer) == [3, 6, 8]
    whole = tmp_path / "whole"
    loop.train(decaying(tiny, 8), whole, store)
    digests = [checkpoints.find(path).meta["digests"]["params"] for path in (longer, whole)]
    assert digests[0] == digests[1]


def test_a_finished_run_with_decay_is_left_alone(tiny, store, tmp_path):
    config = decaying(tiny, 4)
    loop.train(config, tmp_path, store)
    initialisation.check_resumable(config, tmp_path)
    other = dataclasses.replace(config, init_from="elsewhere")
    with pytest.raises(CheckpointError, match="init_from: '', now 'elsewhere'"):
        initialisation.check_resumable(other, tmp_path)
