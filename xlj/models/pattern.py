"""Which layers of an encoder differ in kind, and how a loop runs over them."""

from typing import NamedTuple

import chex
import jax

from xlj.config import Model
from xlj.models.modules import Params

_OF_NORM = "attention_norm"


class Kind(NamedTuple):
    """What distinguishes a layer from others of its encoder."""

    is_local: bool
    """Whether attention is local."""
    is_normed: bool
    """Whether attention has a norm before it."""


class Loop(NamedTuple):
    """A loop over layers: those before `start` run one by one, then the same kinds of `period`
    layers `times` times, then the rest one by one."""

    start: int
    period: int
    times: int

    @property
    def end(self) -> int:
        """The first layer after the loop."""
        return self.start + self.period * self.times


def kinds(model: Model, layers: int) -> tuple[Kind, ...]:
    """The kind of each of the first layers of a model. Layer i, from 0, is full if `full_layers`
    names it or, if that is empty, if `full_attention_every` divides i (ModernBERT)."""

    def is_full(layer: int) -> bool:
        if not model.local_attention:
            return True
        if model.full_layers:
            return str(layer) in model.full_layers
        return layer % model.full_attention_every == 0

    first = model.norm != "embeddings"
    return tuple(Kind(not is_full(i), first or i > 0) for i in range(layers))


def loop_of(kinds: tuple[Kind, ...]) -> Loop:
    """The loop that runs most layers, of these the one of the shortest period."""
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
    """Whether a parameter is stacked by layer, by its name: those of an objective's own layers
    (`generator/layers/...`) are, too."""
    return "layers" in name.split("/")[:-1]


def layer_count(layers: Params) -> int:
    """How many layers stacked parameters have, float [layers, ...] each."""
    stacked = jax.tree.leaves({name: layers[name] for name in layers if name != _OF_NORM})
    message = "what layers have is to be stacked, float [layers, ...]"
    chex.assert_type(stacked, float, custom_message=message)
    chex.assert_equal_shape_prefix(stacked, 1, custom_message=message)
    return stacked[0].shape[0]


def part(layers: Params, start: int, stop: int) -> Params:
    """The parameters of the layers [start, stop) of stacked ones.

    The norm before attention has a row less where the first layer has none (`norm=embeddings`), and
    is left out where none of the layers has it.
    """
    total, found = layer_count(layers), {}
    for name, stacked in layers.items():
        missing = total - jax.tree.leaves(stacked)[0].shape[0]
        rows = slice(max(start - missing, 0), max(stop - missing, 0))
        if rows.stop > rows.start or stop == start:
            found[name] = jax.tree.map(lambda leaf, rows=rows: leaf[rows], stacked)
    return found
