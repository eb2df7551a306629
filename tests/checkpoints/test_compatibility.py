"""What a run may change in the model that it starts from."""

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


def test_other_rotary_bases_are_reported_and_of_teachers_refused():
    compatibility.check_model(source(), CONFIG)
    changes = [str(change) for change in compatibility.rotary_changes(source(), CONFIG)]
    assert changes == ["model.rotary_local_base: 160000.0 -> 10000.0"]
    with pytest.raises(CheckpointError, match=r"teacher=mmbert .*: 160000\.0 -> 10000\.0\. To"):
        compatibility.check_model(source(), CONFIG, "teacher=")


def test_an_error_has_the_flags_of_the_models_own_values():
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
    "path, value",
    [("train.accumulation", 2), ("train.first_microbatches", 2), ("train.batch_warmup", 2),
     ("data.sampled", "en")],
)  # fmt: skip
def test_what_batches_follow_from_is_refused_by_name(tiny, path, value):
    """The number of microbatches is compared during a batch warm-up; otherwise it may change."""
    tiny.train.batch_warmup, tiny.train.accumulation = 4, 4
    checkpoint = Checkpoint("somewhere", 5, {"config": record(parse(tiny))})
    section, name = path.split(".")
    tiny[section][name] = value
    (actual,) = compatibility.config_differences(checkpoint, parse(tiny))
    assert actual.key == path == actual.allowed_by
    tiny.train.allow_change = path
    assert compatibility.config_differences(checkpoint, parse(tiny)) == []


def test_microbatches_of_whole_batches_may_change(tiny):
    checkpoint = Checkpoint("somewhere", 5, {"config": record(parse(tiny))})
    tiny.train.accumulation = 4
    assert compatibility.config_differences(checkpoint, parse(tiny)) == []
