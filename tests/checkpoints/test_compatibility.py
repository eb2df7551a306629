"""Changes that a run may make to the model that it starts from, or on resume."""

import dataclasses
from types import SimpleNamespace

import pytest

from xlj.checkpoints import compatibility
from xlj.checkpoints.reading import Checkpoint, CheckpointError
from xlj.config import Config, Model, parse, record

MMBERT = Model(absolute_positions=False, rotary_base=160_000.0, rotary_local_base=160_000.0)
CONFIG = SimpleNamespace(model=dataclasses.replace(MMBERT, rotary_local_base=10_000.0))


def source(**values):
    return SimpleNamespace(folder="mmbert", model=dataclasses.replace(MMBERT, **values))


def test_other_rotary_bases_are_reported_but_refused_for_teachers():
    compatibility.check_model(source(), CONFIG)
    changes = [str(change) for change in compatibility.rotary_changes(source(), CONFIG)]
    assert changes == ["model.rotary_local_base: 160000.0 -> 10000.0"]
    with pytest.raises(CheckpointError, match=r"teacher=mmbert .*: 160000\.0 -> 10000\.0\. To"):
        compatibility.check_model(source(), CONFIG, "teacher=")


def test_the_error_shows_flags_with_the_values_of_the_model():
    with pytest.raises(CheckpointError) as error:
        compatibility.check_model(source(biases=("inner", "outer"), layers=3), CONFIG)
    flags = "biases=inner,outer layers=3 rotary_local_base=160000.0".split()
    assert str(error.value).endswith(" ".join(f"--config.model.{flag}" for flag in flags))
    assert "rotary_local_base: " not in str(error.value)


def test_the_model_in_a_checkpoint_has_the_rotary_bases_of_its_phase():
    phases = {
        "longer": {"start_step": 5, "model": {"rotary_base": 3.0}},
        "last": {"start_step": 8, "model": {"rotary_local_base": 4.0}},
    }
    meta = {"config": record(Config(model=MMBERT, phases=phases))}
    for step, bases in ((5, (160_000, 160_000)), (6, (3, 160_000)), (9, (3, 4))):
        model = Checkpoint("somewhere", step, meta).model()
        assert (model.rotary_base, model.rotary_local_base) == bases
    # Resuming compares the model of the first phase.
    config = Config(model=MMBERT, phases=phases)
    assert compatibility.config_differences(Checkpoint("somewhere", 9, meta), config) == []


@pytest.mark.parametrize(
    "family, own", [("eurobert", ("gelu", "late")), ("xlm_r", ("tanh", "first"))]
)
def test_checkpoints_without_keys_of_task_heads_have_the_heads_that_they_were_trained_with(
    family, own
):
    meta = {"config": record(Config(model=dataclasses.replace(MMBERT, family=family)))}
    meta["config"]["model"].pop("task_head"), meta["config"]["model"].pop("task_pooling")
    model = Checkpoint("somewhere", 1, meta).model()
    assert (model.task_head, model.task_pooling) == own
    assert not compatibility.config_differences(
        Checkpoint("somewhere", 1, meta), Config(model=model)
    )
    meta["config"]["objectives"] = {"tagging": {"labels": ["no"]}}
    model = Checkpoint("somewhere", 1, meta).model()
    assert (model.task_head, model.task_pooling) == ("tanh", "first")


@pytest.mark.parametrize(
    "path, value",
    [("train.gradient_accumulation_steps", 2), ("train.first_microbatches", 2),
     ("train.batch_warmup", 2), ("data.sampled", "en")],
)  # fmt: skip
def test_changes_of_keys_that_determine_the_batches_are_refused(tiny, path, value):
    """The number of microbatches is compared during a batch warm-up; otherwise it may change."""
    tiny.train.batch_warmup, tiny.train.gradient_accumulation_steps = 4, 4
    checkpoint = Checkpoint("somewhere", 5, {"config": record(parse(tiny))})
    section, name = path.split(".")
    tiny[section][name] = value
    (difference,) = compatibility.config_differences(checkpoint, parse(tiny))
    assert difference.key == path == difference.allowed_by
    tiny.train.allow_change = path
    assert compatibility.config_differences(checkpoint, parse(tiny)) == []


@pytest.mark.parametrize(
    "path, is_allowed",
    [
        ("objectives.masking.rate", True),
        ("objectives.mrtd.weight", True),
        ("objectives.generator.layers", False),
        ("objectives.generator.embeddings", False),
    ],
)
def test_changes_of_a_generator_cannot_be_allowed(tiny, path, is_allowed):
    tiny.objectives.mrtd.batch_size = 8
    checkpoint = Checkpoint("somewhere", 5, {"config": record(parse(tiny))})
    values = {"rate": 0.3, "weight": 2.0, "layers": 2, "embeddings": "separate"}
    tiny.update_from_flattened_dict({path: values[path.rpartition(".")[2]]})
    (difference,) = compatibility.config_differences(checkpoint, parse(tiny))
    assert difference.key == path and difference.allowed_by == (path if is_allowed else "")


def test_the_number_of_microbatches_may_change_without_a_batch_warmup(tiny):
    checkpoint = Checkpoint("somewhere", 5, {"config": record(parse(tiny))})
    tiny.train.gradient_accumulation_steps = 4
    assert compatibility.config_differences(checkpoint, parse(tiny)) == []
