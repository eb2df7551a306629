"""Kinds of layers, the loop over them, and the rows of stacked parameters."""

import dataclasses

import numpy as np
import pytest

from xlj.config import Model
from xlj.models import pattern
from xlj.models.pattern import Loop

MODEL = Model(norm="embeddings", local_attention=16, absolute_positions=False, rotary_base=100.0)


def test_kinds_tell_local_layers_and_layers_without_a_norm():
    kinds = pattern.kinds(MODEL, 5)
    assert [kind.is_local for kind in kinds] == [False, True, True, False, True]
    assert [kind.is_normed for kind in kinds] == [False, True, True, True, True]


@pytest.mark.parametrize(
    "options, layers, loop",
    [
        ({}, 22, Loop(1, 3, 7)),
        ({}, 7, Loop(1, 3, 2)),
        ({}, 6, Loop(1, 1, 2)),
        ({"norm": "pre"}, 22, Loop(0, 3, 7)),
        ({"norm": "pre", "local_attention": 0}, 12, Loop(0, 1, 12)),
        ({"local_attention": 0}, 12, Loop(1, 1, 11)),
        ({"norm": "post", "local_attention": 0}, 1, Loop(0, 1, 1)),
        ({"norm": "post", "local_attention": 0}, 0, Loop(0, 1, 0)),
    ],
)
def test_the_loop_contains_as_many_layers_as_possible(options, layers, loop):
    """Of two loops over equally many layers, the one with the shorter period is chosen."""
    kinds = pattern.kinds(dataclasses.replace(MODEL, **options), layers)
    actual = pattern.loop_of(kinds)
    assert actual == loop and actual.end <= layers
    block = kinds[actual.start : actual.start + actual.period]
    assert kinds[actual.start : actual.end] == block * actual.times


def test_selected_layers_of_stacked_parameters():
    """A leaf that has one row fewer than the others has no row for the first layer."""
    layers = {
        "attention": {"kernel": np.arange(5.0) * 10},
        "attention_norm": {"scale": np.arange(1.0, 5)},
    }
    assert pattern.layer_count(layers) == 5
    first = pattern.select_layers(layers, 0, 1)
    assert first.keys() == {"attention"}
    some = pattern.select_layers(layers, 0, 3)
    assert some["attention"]["kernel"].tolist() == [0, 10, 20]
    assert some["attention_norm"]["scale"].tolist() == [1, 2]
    last = pattern.select_layers(layers, 2, 5)
    assert last["attention"]["kernel"].tolist() == [20, 30, 40]
    assert last["attention_norm"]["scale"].tolist() == [2, 3, 4]
