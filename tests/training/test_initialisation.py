"""First states of runs: parameters of other checkpoints, and checkpoints that are refused."""

import dataclasses
from pathlib import Path

import chex
import jax
import numpy as np
import pytest
from modern_tokenizers import MODERN

from xlj import phrasebook
from xlj.checkpoints import compatibility, reading, writing
from xlj.checkpoints.reading import CheckpointError
from xlj.config import ConfigError, parse
from xlj.data.rows.preparing import prepare_rows
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.sharding import meshes
from xlj.sharding.trees import named_leaves
from xlj.training import initialisation, loop, start, state

pytestmark = pytest.mark.usefixtures("one_device")


def first_state(config, workdir, store=None):
    run = start.prepare(config, workdir, store)
    abstract = state.abstract(run.config, initialisation.Corpus.of(run.store), run.mesh)
    return initialisation.first_state(run, abstract)


def check_resumable(config, workdir):
    compatibility.check_resumable(reading.latest(workdir), config)


@pytest.mark.slow
def test_another_recipe_transfers_the_encoder_and_prints_new_parameters(
    tiny, trained, tmp_path, capsys
):
    tiny.objectives.mmlm.batch_size = tiny.objectives.tlm.batch_size = 0
    for name in ("dwa", "xlco", "camlm"):
        tiny.objectives[name].batch_size = 8
    tiny.objectives.xlco.queue, tiny.objectives.distillation.batch_size = 16, 8
    tiny.objectives.distillation.teacher = str(trained)
    tiny.model.language_embeddings = "predicted"
    tiny.init_from = str(trained)
    config = parse(tiny)
    result = first_state(config, tmp_path / "next")
    output = capsys.readouterr().out
    assert "newly initialised" in output and "pointer_head/query/kernel" in output
    assert "embeddings/language" in output and "embeddings/word" not in output
    mesh = meshes.make_mesh(config, jax.devices()[:1])
    old = named_leaves(reading.restore_params(reading.find(trained), mesh))
    new = named_leaves(result.params)
    chex.assert_trees_all_equal({name: new[name] for name in old}, old)
    for encoder in (
        result.objectives["xlco"]["momentum"],
        result.objectives["distillation"]["teacher"],
    ):
        shared = {name: leaf for name, leaf in named_leaves(encoder).items() if name in old}
        chex.assert_trees_all_equal(shared, {n: old[n][: len(leaf)] for n, leaf in shared.items()})
    # Donation fails if two leaves share a buffer.
    jax.block_until_ready(jax.jit(lambda s: s, donate_argnums=0)(result))


def test_parameters_that_the_new_recipe_does_not_use_are_printed(tiny, trained, tmp_path, capsys):
    tiny.objectives.mmlm.batch_size = tiny.objectives.tlm.batch_size = 0
    tiny.objectives.trtd.batch_size = 8
    tiny.objectives.trtd.generator_layers = 1
    tiny.init_from = str(trained)
    first_state(parse(tiny), tmp_path / "next")
    output = capsys.readouterr().out
    assert "not used: prediction_head/bias" in output and "generator/layers" in output


def test_the_vocabulary_is_written_once_and_by_the_first_process(tiny, trained, monkeypatch):
    tiny.init_from = str(trained)
    config = parse(tiny)
    source = start.find_source(config)
    new_config, vocabulary = start.adopt_vocabulary(config, source, None)
    path = Path(new_config.data.vocabulary)
    written = path.stat().st_mtime_ns
    start.adopt_vocabulary(config, source, None)
    assert path.stat().st_mtime_ns == written
    path.write_bytes(b"cut short")
    with monkeypatch.context() as patch:
        patch.setattr(start.hosts, "broadcast", lambda decide: None)  # as in another process
        start.adopt_vocabulary(config, source, None)
    assert path.read_bytes() == b"cut short"
    start.adopt_vocabulary(config, source, None)
    assert path.read_bytes() == vocabulary.model


def test_a_model_of_another_size_is_refused(tiny, trained):
    tiny.init_from, tiny.model.layers = str(trained), 3
    with pytest.raises(CheckpointError, match=r"differs from the config: model\.layers: 2 -> 3"):
        start.find_source(parse(tiny))


def test_a_resume_with_other_rows_names_the_changed_rows(tiny, trained, store):
    tiny.data.pair_length = 40
    other = prepare_rows(parse(tiny))
    with pytest.raises(
        CheckpointError, match=r"rows of pairs\.en-de: changed; rows of pairs\.en-sw"
    ):
        loop.train(start.prepare(parse(tiny), trained, other))


def decaying_config(tiny, steps):
    tiny.train.steps, tiny.train.checkpoint_every, tiny.train.keep_checkpoints = steps, 1, 1
    tiny.optimizer.schedule, tiny.optimizer.decay_steps = "wsd", 2
    return parse(tiny)


@pytest.mark.slow
def test_a_longer_run_resumes_only_from_a_checkpoint_before_the_decay(tiny, store, tmp_path):
    run = tmp_path / "run"
    loop.train(start.prepare(decaying_config(tiny, 5), run, store))
    assert reading.steps(run) == [3, 5]
    with pytest.raises(CheckpointError, match="decay .* of a run with 5 steps.*checkpoints/3"):
        check_resumable(decaying_config(tiny, 8), run)
    # As the message advises, another workdir resumes from the checkpoint before the decay.
    longer = tmp_path / "longer"
    (longer / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "3").rename(longer / "checkpoints" / "3")
    loop.train(start.prepare(decaying_config(tiny, 8), longer, store))
    assert reading.steps(longer) == [3, 6, 8]
    whole = tmp_path / "whole"
    loop.train(start.prepare(decaying_config(tiny, 8), whole, store))
    digests = [reading.find(path).meta["digests"]["params"] for path in (longer, whole)]
    assert digests[0] == digests[1]


@pytest.mark.slow
def test_a_finished_run_with_a_decay_accepts_only_its_own_config(tiny, store, tmp_path):
    config = decaying_config(tiny, 4)
    loop.train(start.prepare(config, tmp_path, store))
    check_resumable(config, tmp_path)
    other = dataclasses.replace(config, init_from="elsewhere")
    with pytest.raises(CheckpointError, match="init_from: '' -> 'elsewhere'"):
        check_resumable(other, tmp_path)


def moments(optimizer_state):
    return {n: np.asarray(x) for n, x in named_leaves(optimizer_state).items()}


def test_optimizer_moments_are_copied_on_request_also_with_other_rows(tiny, trained, tmp_path):
    tiny.data.pair_length, tiny.init_from = 40, str(trained)
    fresh = moments(first_state(parse(tiny), tmp_path / "next").optimizer)
    assert not any(leaf.any() for leaf in fresh.values())
    tiny.transfer.optimizer = True
    result = first_state(parse(tiny), tmp_path / "next")
    copied = reading.digests(result.optimizer)
    assert copied == reading.find(trained).meta["digests"]["optimizer"]
    assert int(result.progress.step) == 0
    expected = reading.find(trained).meta["digests"]["params"]
    assert reading.digests(result.params) == expected


def test_moments_of_other_parameters_are_refused(tiny, trained, store, tmp_path):
    tiny.init_from, tiny.transfer.optimizer = str(trained), True
    tiny.optimizer.name = "stable_adamw"
    with pytest.raises(CheckpointError, match="holds the moments of adamw, not of .*stable_adamw"):
        start.find_source(parse(tiny))
    tiny.optimizer.name, tiny.objectives.dwa.batch_size = "adamw", 8
    config = parse(tiny)
    with pytest.raises(CheckpointError, match="tensors of optimizer differ"):
        first_state(config, tmp_path / "next", store)
    checkpoint = reading.find(trained)
    mesh = meshes.one_device()
    converted = tmp_path / "converted"
    writing.write_params(
        converted,
        reading.restore_params(checkpoint, mesh),
        config,
        reading.read_vocabulary(checkpoint),
        list(store.manifest.languages),
    )
    tiny.init_from = str(converted)
    with pytest.raises(CheckpointError, match="transfer.optimizer: .* holds parameters only"):
        start.find_source(parse(tiny))
    tiny.transfer.parts = "body"
    with pytest.raises(ConfigError, match="transfer.optimizer copies the moments of all"):
        parse(tiny)


def test_changes_of_fixed_keys_are_refused_unless_allowed(tiny, trained):
    tiny.train.steps = 5
    tiny.optimizer.learning_rate, tiny.model.dropout, tiny.data.alpha = 0.2, 0.3, 0.5
    message = (
        r"model\.dropout: 0\.1 -> 0\.3; data\.alpha: 0\.7 -> 0\.5; "
        r"optimizer\.learning_rate: 0\.001 -> 0\.2\. .*"
        r"allow_change=model\.dropout,data\.alpha,optimizer\.learning_rate\. "
    )
    with pytest.raises(CheckpointError, match=message):
        check_resumable(parse(tiny), trained)
    tiny.train.allow_change = "model.dropout,optimizer.learning_rate"
    with pytest.raises(CheckpointError, match=r"another run: data\.alpha: 0\.7 -> 0\.5\. "):
        check_resumable(parse(tiny), trained)
    tiny.train.allow_change = "model.dropout,optimizer.learning_rate,data.alpha"
    check_resumable(parse(tiny), trained)
    tiny.train.allow_change += ",model.heads"  # a key that can never change
    tiny.model.heads = 4
    with pytest.raises(CheckpointError, match=r"model\.heads: 2 -> 4") as error:
        check_resumable(parse(tiny), trained)
    assert "allow_change" not in str(error.value)
    tiny.train.allow_change = "optimizer.learningrate"
    with pytest.raises(
        ConfigError, match=r"unknown config key optimizer\.learningrate; did you mean"
    ):
        parse(tiny)


def test_keys_that_an_old_checkpoint_lacks_have_their_defaults(tiny, trained):
    config = parse(tiny)
    checkpoint = reading.find(trained)
    old = checkpoint.meta["config"]
    del old["optimizer"]["frozen"], old["objectives"]["mmlm"]["weight"], old["transfer"]
    assert "transfer" not in checkpoint.config()
    assert not compatibility.config_differences(checkpoint, config)
    tiny.optimizer.frozen = "embeddings"
    (difference,) = compatibility.config_differences(checkpoint, parse(tiny))
    assert str(difference) == "optimizer.frozen: [] -> ['embeddings']"


def test_a_pair_separator_that_is_not_in_the_vocabulary_is_refused(tiny):
    config = parse(tiny)
    model = dataclasses.replace(config.model, pair_separator="parallel")
    separated = dataclasses.replace(config, model=model)
    lines = [line for _, line in zip(range(99), phrasebook.text_lines("en"), strict=False)]
    euro, modern = (
        Vocabulary(MODERN[kind](lines, 350).to_str().encode())
        for kind in ("eurobert", "modernbert")
    )
    start.check_separator(separated, euro)
    start.check_separator(config, None)
    for other in (modern, None):
        with pytest.raises(
            ConfigError, match=r"pair_separator=parallel: .* has no <\|parallel_sep"
        ):
            start.check_separator(separated, other)
