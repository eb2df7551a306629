"""What a run may change of a model that it starts from."""

import dataclasses
from types import SimpleNamespace

import pytest

from xlj.checkpoints import compatibility
from xlj.checkpoints.reading import CheckpointError
from xlj.config import Model

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
