"""Kinds of layers in an encoder, and the loop that runs over repeating kinds."""

from typing import NamedTuple

import chex
import jax

from xlj.config import Model
from xlj.families.modern import is_local
from xlj.sharding.trees import Params

_OF_NORM = "attention_norm"


class Kind(NamedTuple):
    """The properties in which layers of an encoder can differ."""

    is_local: bool
    """Whether attention is limited to a window."""
    is_normed: bool
    """Whether the residual connection of attention has a norm. The first layer has none with
    `model.norm=embeddings`."""


class Loop(NamedTuple):
    """A loop over layers.

    The layers before `start` run one by one. Then the loop runs `times` times. Each iteration runs
    `period` layers, and all iterations have the same kinds of layers. The layers after the loop run
    one by one.
    """

    start: int
    period: int
    times: int

    @property
    def end(self) -> int:
        """The zero-based number of the first layer after the loop."""
        return self.start + self.period * self.times


def kinds(model: Model, layers: int) -> tuple[Kind, ...]:
    """Returns the kinds of the first `layers` layers of a model."""
    first = model.norm != "embeddings"
    return tuple(Kind(is_local(model, i), first or i > 0) for i in range(layers))


def loop_of(kinds: tuple[Kind, ...]) -> Loop:
    """Returns the loop that covers the largest number of layers.

    A loop runs at least twice, unless there is only one layer. At most `period` layers come before
    it. Among loops that cover equally many layers, the function returns the one with the shortest
    period. If there is no loop, `times` is 0.
    """
    best = Loop(0, 1, 0)
    for period in range(1, len(kinds) + 1):
        for start in range(min(period, len(kinds) - period) + 1):
            block = kinds[start : start + period]
            times = 1
            while kinds[start + times * period : start + (times + 1) * period] == block:
                times += 1
            loop = Loop(start, period, times)
            if times * period > best.times * best.period and (times > 1 or len(kinds) == 1):
                best = loop
    return best


def is_stacked(name: str) -> bool:
    """Returns whether the first axis of a parameter is the layer.

    This holds for the encoder's layers, and for layers of an objective (`generator/layers/...`).

    Args:
      name: of the parameter, e.g. `layers/attention/query/kernel`.
    """
    return "layers" in name.split("/")[:-1]


def layer_count(layers: Params) -> int:
    """Returns the number of layers of stacked parameters.

    Args:
      layers: nested dict of parameters, float [layers, ...] each. The norm before attention may
        have one row less (`model.norm=embeddings`) and is not read.
    """
    stacked = jax.tree.leaves({name: layers[name] for name in layers if name != _OF_NORM})
    message = "parameters of layers must be stacked, float [layers, ...]"
    chex.assert_type(stacked, float, custom_message=message)
    chex.assert_equal_shape_prefix(stacked, 1, custom_message=message)
    return stacked[0].shape[0]


def select_layers(layers: Params, start: int, stop: int) -> Params:
    """Returns the parameters of layers [start, stop) from stacked parameters.

    With `model.norm=embeddings` the first layer has no norm before attention, so the array of this
    norm has one row less than the other arrays. The result omits this norm if none of the selected
    layers has it.

    Args:
      layers: nested dict of parameters, float [layers, ...] each.
    """
    total, selected = layer_count(layers), {}
    for name, stacked in layers.items():
        # 1 for a norm that the first layer lacks, else 0.
        missing = total - jax.tree.leaves(stacked)[0].shape[0]
        rows = slice(max(start - missing, 0), max(stop - missing, 0))
        if rows.stop > rows.start or stop == start:
            selected[name] = jax.tree.map(lambda leaf, rows=rows: leaf[rows], stacked)
    return selected
