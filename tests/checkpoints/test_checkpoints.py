"""Reading, verification, comparison and deletion of checkpoints, and the metrics of runs."""

import dataclasses
import gc
import json
import os
import re
import shutil
import sys

import chex
import jax
import numpy as np
import pytest

from xlj.checkpoints import compatibility, metrics, reading, stored_models, writing
from xlj.checkpoints.digests import digests
from xlj.config import ConfigError, Model, parse
from xlj.data.rows.store import Corpus
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io.atomic import GrowingFiles
from xlj.sharding import meshes, trees
from xlj.training import loop, start, state


def abstract_state(tiny, store, devices=1):
    config = parse(tiny)
    corpus = Corpus.of(store)
    mesh = meshes.make_mesh(config, jax.devices()[:devices])
    return state.abstract(config, corpus, mesh)


@pytest.mark.slow
def test_a_checkpoint_is_restored_onto_another_mesh(tiny, store, trained):
    checkpoint = reading.find(trained)
    assert checkpoint.step == 4
    single = reading.restore(checkpoint, abstract_state(tiny, store).items())
    tiny.mesh.fsdp = 4
    sharded = reading.restore(checkpoint, abstract_state(tiny, store, devices=8).items())
    chex.assert_trees_all_equal(single, sharded)
    assert digests(single["params"]) == digests(sharded["params"])
    assert len(sharded["params"]["embeddings"]["word"].sharding.device_set) == 8


def test_a_flipped_bit_never_changes_restored_arrays(tiny, store, trained, tmp_path):
    """Orbax itself restores most flipped bits without an error; some bits on disk are unused."""
    target = {"params": abstract_state(tiny, store).params}
    source = reading.find(trained).folder
    expected = reading.restore(reading.find(trained), target)
    rng = np.random.default_rng(0)
    files = [file for file in (source / "params" / "d").iterdir() if file.is_file()]
    assert files
    detected = 0
    for number in range(12):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(source, copy)
        file = copy / files[rng.integers(len(files))].relative_to(source)
        content = bytearray(file.read_bytes())
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        file.write_bytes(content)
        try:
            restored = reading.restore(reading.find(copy), target)
        except reading.CheckpointError as error:
            assert "damaged" in str(error) or "cannot read" in str(error)
            detected += 1
        else:
            chex.assert_trees_all_equal(restored, expected)
    assert detected >= 9


@pytest.mark.parametrize(
    "damage", [pytest.param(x, marks=pytest.mark.slow) for x in ("deleted", "emptied", "halved")]
)
def test_a_damaged_file_is_one_clear_error_or_has_no_effect(
    tiny, store, trained, tmp_path, damage, monkeypatch, capsys, caplog
):
    """Orbax raises many types of errors, and prints tracebacks of abandoned work."""
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    target = abstract_state(tiny, store)
    source = reading.find(trained).folder
    expected = reading.restore(reading.find(trained), target.items())
    damaged_items = set()
    for file in sorted(file for file in source.rglob("*") if file.is_file()):
        copy = tmp_path / "copy"
        shutil.copytree(source, copy)
        damaged = copy / file.relative_to(source)
        content = damaged.read_bytes()
        damaged.write_bytes(b"" if damage == "emptied" else content[: len(content) // 2])
        if damage == "deleted":
            damaged.unlink()
        try:
            checkpoint = reading.find(copy)
            vocabulary = reading.read_vocabulary(checkpoint)
            restored = reading.restore(checkpoint, target.items())
        except reading.CheckpointError as error:
            line = f"{copy} is damaged: .*; to resume from the previous checkpoint, move"
            assert re.match(line, str(error)) and "\n" not in str(error)
            damaged_items.add(file.relative_to(source).parts[0])
        else:
            chex.assert_trees_all_equal(restored, expected)
            assert vocabulary.digest == checkpoint.meta["vocabulary"]
        shutil.rmtree(copy)
    assert damaged_items == {"meta", "optimizer", "params", "progress", "vocabulary"}
    gc.collect()
    assert "Traceback" not in capsys.readouterr().err
    assert not [record for record in caplog.records if "Traceback" in caplog.text]


@pytest.mark.parametrize("name", ["4/meta", "4/progress", "4/params", "999"])
def test_the_error_names_a_folder_that_is_missing_or_empty(tiny, store, trained, name):
    folder = trained / "checkpoints" / name
    shutil.rmtree(folder, ignore_errors=True)
    if name == "999":
        folder.mkdir()
    tiny.train.steps = 999
    path = trained / "checkpoints" / name.partition("/")[0]
    with pytest.raises(reading.CheckpointError, match=f"^{path} is damaged.*move this folder"):
        loop.train(start.prepare(parse(tiny), trained, store))
    shutil.rmtree(path)  # as the message advises
    assert reading.find(trained).step == (4 if name == "999" else 2)
    if name == "4/params":
        tiny.train.steps = 3
        assert loop.train(start.prepare(parse(tiny), trained, store)).finished


def test_changed_metadata_is_detected(trained, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(reading.find(trained).folder, copy)
    file = next(
        f for f in (copy / "meta").rglob("*") if f.is_file() and b'"seed"' in f.read_bytes()
    )
    file.write_bytes(file.read_bytes().replace(b'"step": 4', b'"step": 5'))
    with pytest.raises(reading.CheckpointError, match="damaged"):
        reading.find(copy)


def test_a_missing_key_of_an_old_checkpoint_has_its_default(tiny, tmp_path):
    config = parse(tiny)
    old = json.loads(json.dumps(dataclasses.asdict(config)))
    del old["model"]["position_bias"]
    checkpoint = reading.Checkpoint(tmp_path, 1, {"config": old})
    assert not compatibility.model_differences(checkpoint.model(), config.model)
    biased = dataclasses.replace(config.model, position_bias="t5")
    (difference,) = compatibility.model_differences(checkpoint.model(), biased)
    assert str(difference) == "model.position_bias: 'none' -> 't5'"


@pytest.mark.parametrize(
    "name, value, free",
    [
        ("family", "gte", "_FREE_ON_RESUME"),
        ("dropout_parts", (), "_FREE"),
        ("rotary_base", 9.0, "_FREE_AT_START"),
        ("rotary_local_base", 9.0, "_FREE_AT_START"),
        ("middle_norm", True, "_FREE_AT_START"),
        ("pair_marks", ("separator",), "_FREE_AT_START"),
        ("pair_marks", ("types",), ""),
        ("norm", "embeddings", ""),
        ("norm_type", "rms", ""),
        ("feed_forward", "geglu", ""),
        ("local_attention", 8, ""),
        ("full_layers", ("1",), ""),
        ("key_value_heads", 2, ""),
        ("biases", (), ""),
        ("prediction", "linear", ""),
        ("tied", False, ""),
    ],
)
def test_options_of_the_encoder_that_may_change(name, value, free):
    """A key that may change on resume may also change when parameters are used, and when another
    run starts from them."""
    old, new = Model(), dataclasses.replace(Model(), **{name: value})
    order = ("_FREE_ON_RESUME", "_FREE", "_FREE_AT_START")
    first = order.index(free) if free else len(order)
    for at, keys in enumerate(order):
        differ = compatibility.model_differences(old, new, getattr(compatibility, keys))
        assert bool(differ) == (at < first), keys


def test_a_folder_without_a_checkpoint_is_reported(tmp_path):
    with pytest.raises(reading.CheckpointError, match="contains no model"):
        reading.find(tmp_path)


@pytest.mark.slow
def test_a_run_starts_from_the_parameters_and_vocabulary_of_another_run(
    tiny, store, trained, tmp_path
):
    tiny.init_from, tiny.train.steps = str(trained), 1
    tiny.optimizer.learning_rate = 0.0
    run = start.prepare(parse(tiny), tmp_path / "next")
    assert run.config.data.vocabulary
    assert run.store.manifest.vocabulary_digest == store.manifest.vocabulary_digest
    loop.train(run)
    expected = reading.find(trained).meta["digests"]["params"]
    assert reading.find(tmp_path / "next").meta["digests"]["params"] == expected


@pytest.mark.slow
def test_the_checkpoint_before_the_decay_is_kept(tiny, store, tmp_path):
    tiny.train.steps, tiny.train.checkpoint_every, tiny.train.keep_checkpoints = 8, 2, 1
    tiny.optimizer.schedule, tiny.optimizer.decay_steps = "wsd", 5
    loop.train(start.prepare(parse(tiny), tmp_path, store))
    assert reading.steps(tmp_path) == [3, 8]


def test_no_file_is_deleted_from_a_folder_that_counts_as_a_checkpoint(
    tiny, store, tmp_path, monkeypatch
):
    """A process may be killed between any two of these deletions."""
    vocabulary, folder = Vocabulary.load(store.vocabulary_file), tmp_path / "checkpoints"
    (folder / "deleted" / "1" / "meta").mkdir(parents=True)  # of a process that was killed
    delete, deleted = os.unlink, []

    def recorded(path, *, dir_fd=None):
        parent = "" if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
        deleted.append(os.path.join(parent, path))
        delete(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", recorded)
    checkpointer = writing.Checkpointer(tmp_path, parse(tiny), store.manifest, vocabulary, keep=2)
    assert not list(folder.iterdir())
    for step in range(2, 6):
        checkpointer.save(step, {"params": {"weight": np.arange(3.0) + step}})
    assert not (folder / "deleted" / "2").exists()  # its files use no more disk space
    checkpointer.close()
    assert sorted(entry.name for entry in folder.iterdir()) == ["4", "5"]
    places = {os.path.relpath(path, folder).split(os.sep)[0] for path in deleted}
    assert "deleted" in places and not any(place.isdecimal() for place in places)


@pytest.mark.parametrize(
    "metric, layer, chosen", [("eval/x", -1, 2), ("eval/x", 1, 2), ("", -1, 4)]
)
def test_a_workdir_stands_for_its_best_checkpoint_which_stores_a_layer(
    tiny, store, tmp_path, metric, layer, chosen
):
    """The best checkpoint is kept; the layer of the config has priority over the stored layer."""
    tiny.train.best_metric, tiny.evaluation.alignment.layer = metric, layer
    vocabulary = Vocabulary.load(store.vocabulary_file)
    scores = {}
    writer = writing.Checkpointer(
        tmp_path, parse(tiny), store.manifest, vocabulary, keep=1, scores=scores
    )
    log = metrics.Metrics(GrowingFiles(tmp_path), 0)
    for step, value in enumerate((0.3, 0.7, None, 0.5), 1):
        log.log(step, {} if value is None else {"eval/x": value})
        scores.update(metrics.scores(metrics.read(tmp_path), metric))
        writer.save(step, {"params": {"weight": np.ones(3)}}, layer=step - 2)
    writer.close()
    log.close()
    assert reading.steps(tmp_path) == sorted({chosen, 4})
    found = stored_models.find(tmp_path)
    assert found.folder == tmp_path / f"checkpoints/{chosen}"
    assert found.alignment.layer == (chosen - 2 if layer < 0 else layer)
    assert stored_models.find(tmp_path / "checkpoints/4").folder.name == "4"


def test_metrics_after_the_step_of_the_checkpoint_are_removed(tmp_path):
    writer = metrics.Metrics(GrowingFiles(tmp_path), 0)
    for step in (1, 2, 3):
        writer.log(step, {"x": step / 3})
    writer.close()
    with (tmp_path / metrics.FILE).open("a") as file:
        file.write('{"step": 4, "x"')  # a line that was cut by a kill
    writer = metrics.Metrics(GrowingFiles(tmp_path), 2)
    writer.log(3, {"x": 7.0})
    writer.close()
    assert metrics.read(tmp_path) == [
        {"step": 1, "x": 1 / 3},
        {"step": 2, "x": 2 / 3},
        {"step": 3, "x": 7.0},
    ]


def test_damaged_metrics_are_an_error_that_names_the_line(tmp_path):
    (tmp_path / metrics.FILE).write_text('{"step": 1}\nnonsense\n{"step": 2}\n')
    with pytest.raises(ConfigError, match=r"metrics\.jsonl:2"):
        metrics.read(tmp_path)


def test_digests_depend_on_every_element_and_its_place():
    x = np.random.default_rng(0).normal(size=(7, 11)).astype(np.float32)
    base = digests({"x": jax.numpy.asarray(x)})
    for place in np.ndindex(*x.shape):
        other = x.copy()
        other.view(np.uint32)[place] ^= 1
        assert digests({"x": jax.numpy.asarray(other)}) != base
    assert digests({"x": jax.numpy.asarray(x[::-1])}) != base


def plain_digest(array):
    """Computes the digest as documented, with Python's integers."""
    mask = 2**32 - 1

    def mix(x):
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            x = (x ^ x >> shift) * factor & mask
        return x ^ x >> 16

    bits = [int(bit) for bit in array.view(np.uint32).ravel()]
    return "".join(
        f"{sum(mix(bit ^ mix(i + salt & mask)) for i, bit in enumerate(bits)) & mask:08x}"
        for salt in (0x9E3779B9, 0x85EBCA6B)
    )


@pytest.mark.parametrize("piece", [1, 20, 1000])
@pytest.mark.parametrize("spec", [(), ("fsdp",), (None, "fsdp")])
def test_digests_do_not_depend_on_pieces_or_devices(monkeypatch, piece, spec):
    monkeypatch.setattr("xlj.checkpoints.digests._PIECE", piece)
    mesh = jax.make_mesh((2,), ("fsdp",), (jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
    x = np.random.default_rng(0).normal(size=(6, 4, 5)).astype(np.float32)
    expected = {"x": plain_digest(x)}
    assert digests({"x": x}) == digests({"x": jax.device_put(x, sharding)}) == expected


def test_a_single_leaf_is_read_and_verified(trained):
    checkpoint = reading.find(trained)
    params = reading.restore_params(checkpoint, meshes.one_device())
    expected = trees.named_leaves(params)
    actual = {name: reading.restore_leaf(checkpoint, name) for name in expected}
    assert {type(leaf) for leaf in actual.values()} == {np.ndarray}
    chex.assert_trees_all_equal(actual, expected)
    checkpoint.meta["digests"]["params"]["embeddings/word"] = "0" * 16
    with pytest.raises(reading.CheckpointError, match="damaged: params embeddings/word"):
        reading.restore_leaf(checkpoint, "embeddings/word")


def test_large_embeddings_are_stored_in_equal_pieces_if_possible():
    def piece(*shape):
        return writing._choose_pieces(jax.ShapeDtypeStruct(shape, np.float32)).chunk_byte_size

    assert piece(250_002, 768) == 14_706 * 768 * 4
    assert piece(250_007, 768) is None  # a prime number
    assert piece(1000, 768) is piece(24, 2048, 2048) is piece() is None


@pytest.mark.slow
def test_a_run_that_is_not_finite_stops_and_writes_the_rows_to_a_file(
    tiny, store, tmp_path, devices
):
    devices(1)
    tiny.objectives.tlm.batch_size, tiny.model.layers, tiny.train.eval_rows = 0, 1, 0
    tiny.train.max_skipped_steps, tiny.train.steps = 1, 50
    tiny.optimizer.learning_rate = 1e30
    with pytest.raises(ConfigError, match="not_finite_"):
        loop.train(start.prepare(parse(tiny), tmp_path, store))
    assert list(tmp_path.glob("not_finite_*.json"))
