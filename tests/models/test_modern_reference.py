"""The NumPy encoder: the effect of each option of ModernBERT, mmBERT, EuroBERT and gte."""

import jax
import numpy as np
import pytest
from references import encoder, heads
from references.families import VOCABULARY, drawn, options
from references.layout import agree, of_lengths
from references.parameters import shapes

from xlj.config import Model
from xlj.models import encoder as jax_encoder

LENGTH = 200

MMBERT, EUROBERT = "ModernBert-medium", "EuroBert-medium"
GTE, GTE_SCALED = "Gte-small", "Gte-large"


def tokens_of(rows=1, length=LENGTH):
    return np.random.default_rng(1).integers(4, VOCABULARY, (rows, length))


def logits(params, head, model, **inputs):
    inputs = {"tokens": tokens_of(), "places": of_lengths([[LENGTH]], LENGTH)} | inputs
    hidden = encoder.encode(params, model, **inputs)[-1]
    return heads.prediction(head, params["embeddings"]["word"], model, hidden)


def replace_at(tree, path, function):
    """Replaces the entry at a path of a nested dict by function(entry)."""
    name, _, rest = path.partition("/")
    part = replace_at(tree[name], rest, function) if rest else function(tree[name])
    return tree | {name: part}


def set_option(**changes):
    def change(params, head, model, patch):
        return params, head, type(model)(**vars(model) | changes)

    return change


def tanh_gelu(params, head, model, patch):
    def approximate(x):
        return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2

    patch.setattr(encoder, "gelu", approximate)
    patch.setattr(heads, "gelu", approximate)
    return params, head, model


def neighbour_pairs(params, head, model, patch):
    def rotated(x, angles):
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        even, odd = x[..., ::2], x[..., 1::2]
        turned = np.stack([even * cos - odd * sin, odd * cos + even * sin], axis=-1)
        return turned.reshape(x.shape)

    patch.setattr(encoder, "rotated", rotated)
    return params, head, model


def swapped_halves(params, head, model, patch):
    def swap(part):
        halves = {name: np.split(array, 2, axis=-1) for name, array in part.items()}
        return {name: np.concatenate(both[::-1], axis=-1) for name, both in halves.items()}

    return replace_at(params, "layers/feed_forward/inner", swap), head, model


def normed_first_layer(params, head, model, patch):
    def layer(layers, model, index):
        part = of_layer(layers, model, index)
        return {"attention_norm": {"scale": np.ones(model.hidden)}} | part

    of_layer = encoder.layer
    patch.setattr(encoder, "layer", layer)
    return params, head, model


def without(path):
    """Removes the norm at a path of the parameters."""

    def change(params, head, model, patch):
        def norm(part, model, x):
            return x if part is skipped else normed(part, model, x)

        normed, skipped = encoder.norm, params
        for name in path.split("/"):
            skipped = skipped[name]
        patch.setattr(encoder, "norm", norm)
        return params, head, model

    return change


def head_major_projection(params, head, model, patch):
    """Reads the outputs of `Wqkv` as [heads, 3, size] instead of [3, heads, size]."""

    def permute(part):
        kernels = [part[name]["kernel"] for name in ("query", "key", "value")]
        layers, hidden, _ = kernels[0].shape
        together = np.concatenate(kernels, -1)
        split = together.reshape(layers, hidden, model.heads, 3, -1).swapaxes(2, 3)
        split = split.reshape(layers, hidden, 3, hidden)
        permuted = {name: {"kernel": split[:, :, at]} for at, name in enumerate(("query", "key"))}
        return part | permuted | {"value": {"kernel": split[:, :, 2]}}

    return replace_at(params, "layers/attention", permute), head, model


def interleaved_key_value_heads(params, head, model, patch):
    """Head h reads key-value head h % k instead of h // (heads / k)."""
    count, size = model.key_value_heads, model.hidden // model.heads
    order = np.arange(model.heads) % count

    def spread(array):
        parts = array.reshape(*array.shape[:-1], count, size)
        return parts[..., order, :].reshape(*array.shape[:-1], model.hidden)

    def widen(part):
        wide = {
            name: {kind: spread(array) for kind, array in part[name].items()}
            for name in ("key", "value")
        }
        return part | wide

    params = replace_at(params, "layers/attention", widen)
    return params, head, type(model)(**vars(model) | {"key_value_heads": 0})


def tied_head(params, head, model, patch):
    return params, head, type(model)(**vars(model) | {"tied": True})


MISREADINGS = {
    "GELU by tanh": (MMBERT, tanh_gelu),
    "GLU halves swapped": (MMBERT, swapped_halves),
    "neighbour pairs rotated": (MMBERT, neighbour_pairs),
    "local base 10000": (MMBERT, set_option(rotary_local_base=10000.0)),
    "window exclusive": (MMBERT, set_option(local_attention=126)),
    "window halved twice": (MMBERT, set_option(local_attention=64)),
    "window to each side": (MMBERT, set_option(local_attention=256)),
    "every layer full": (MMBERT, set_option(local_attention=0)),
    "full layers shifted by one": (MMBERT, set_option(full_layers=("1", "4"))),
    "first layer normed": (MMBERT, normed_first_layer),
    "no embedding norm": (MMBERT, without("embeddings/norm")),
    "no final norm": (MMBERT, without("final_norm")),
    "Wqkv by heads": (MMBERT, head_major_projection),
    "epsilon 1e-12 for 1e-5": (MMBERT, set_option(layer_norm_epsilon=1e-12)),
    "GLU halves swapped, EuroBERT": (EUROBERT, swapped_halves),
    "GELU for SiLU": (EUROBERT, set_option(feed_forward="geglu")),
    "LayerNorm for RMSNorm": (EUROBERT, set_option(norm_type="unbiased")),
    "key-value heads interleaved": (EUROBERT, interleaved_key_value_heads),
    "base 10000 for 250000": (EUROBERT, set_option(rotary_base=10000.0)),
    "tied head": (EUROBERT, tied_head),
    "GLU halves swapped, gte": (GTE, swapped_halves),
    "GELU by tanh, gte": (GTE, tanh_gelu),
    "no token type": (GTE, set_option(token_types=0)),
    "epsilon 1e-5 for 1e-12": (GTE, set_option(layer_norm_epsilon=1e-5)),
    "no scaling": (GTE_SCALED, set_option(rotary_factor=1.0)),
}
"""Misreadings of released models: the model, and the function that applies the misreading."""

SMALL = {"epsilon 1e-5 for 1e-12": 5e-4}
"""Misreadings that change the logits by less than 1e-3, with a lower bound. Variances are about 0.1
here, which hides a wrong epsilon."""


def distance(actual, expected):
    """Returns the norm of the difference, relative to the norm of the expected value."""
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("misreading", MISREADINGS)
def test_each_misreading_changes_the_logits(misreading, monkeypatch):
    name, change = MISREADINGS[misreading]
    model = options(name)
    params, head = drawn(model)
    expected = logits(params, head, model)
    actual = logits(*change(params, head, model, monkeypatch))
    assert distance(actual, expected) > SMALL.get(misreading, 1e-3)


@pytest.mark.parametrize("name", [MMBERT, EUROBERT, GTE_SCALED])
def test_rotary_attention_depends_only_on_differences_of_positions(name):
    """In float64, XLM-R's offset of 2, or positions that do not restart in a packed row, have no
    effect. In float32 and bfloat16, large positions lose digits."""
    model, rows = options(name), [[70, 100]]
    params, head = drawn(model)
    example, side, position = of_lengths(rows, LENGTH)
    expected = logits(params, head, model, places=(example, side, position))
    for positions in (position + 2, np.arange(LENGTH)[None]):
        actual = logits(params, head, model, places=(example, side, positions))
        assert distance(actual[:, :170], expected[:, :170]) < 1e-9


def test_positions_that_restart_in_a_pair_change_rotary_attention():
    model, places = options(EUROBERT), of_lengths([[LENGTH]], LENGTH)
    params, head = drawn(model)
    places[1][0, 120:] = 1
    expected = logits(params, head, model, places=places)
    restart_positions = options(EUROBERT, pair_marks=("positions",))
    actual = logits(params, head, restart_positions, places=places)
    assert distance(actual, expected) > 0.1
    explicit = places[0], places[1], np.r_[np.arange(120), np.arange(80)][None]
    np.testing.assert_array_equal(actual, logits(params, head, model, places=explicit))
    assert places[2].tolist() == [list(range(LENGTH))], "the input must not be modified"


@pytest.mark.parametrize("name", [MMBERT, EUROBERT, GTE])
def test_examples_of_a_packed_row_equal_each_example_alone(name):
    model, lengths = options(name), (80, 5, 110)
    params, head = drawn(model)
    tokens = tokens_of()
    packed = logits(params, head, model, places=of_lengths([lengths], LENGTH))
    ends = np.cumsum(lengths)
    for start, end in zip(ends - lengths, ends, strict=True):
        places = of_lengths([[end - start]], end - start)
        alone = logits(params, head, model, tokens=tokens[:, start:end], places=places)
        assert distance(packed[:, start:end], alone) < 1e-10


def test_a_local_layer_sees_64_places_to_each_side():
    model = options(MMBERT, layers=2, full_layers=("1",))
    params, _ = drawn(model)
    place, places = 90, of_lengths([[LENGTH]], LENGTH)
    tokens = tokens_of()
    other = tokens.copy()
    other[0, place] = tokens[0, place] % (VOCABULARY - 1) + 1
    local, full = (
        abs(encoder.encode(params, model, tokens, places=places)
            - encoder.encode(params, model, other, places=places)).max((1, 3))[1:] > 0
    )  # fmt: skip
    assert np.flatnonzero(local).tolist() == list(range(place - 64, place + 65))
    assert full.all()


def test_queries_without_keys_get_zeros():
    """If padding keys are hidden, padding farther from the last token than the window sees no
    key."""
    model, real = options(MMBERT), 60
    params, _ = drawn(model)
    places = of_lengths([[real]], LENGTH)
    sees = agree(np.ones((1, LENGTH)), places[0])
    actual = encoder.encode(params, model, tokens_of(), places=places, sees=sees)
    assert np.isfinite(actual).all()
    expected = encoder.encode(params, model, tokens_of(), places=places)
    assert distance(actual[:, :, :real], expected[:, :, :real]) < 1e-12
    part = encoder.layer(params["layers"], model, 1)["attention"]
    near = sees & encoder.window(model, LENGTH)
    update = encoder.attention(part, model, actual[1], near, None)
    empty = (update == 0).all(-1)[0]
    assert np.flatnonzero(empty).tolist() == list(range(real + 64, LENGTH))


def test_a_period_and_a_list_of_full_layers_select_the_same_layers():
    period = options(MMBERT, layers=22)
    full = [layer for layer in range(22) if encoder.is_full(period, layer)]
    assert full == [0, 3, 6, 9, 12, 15, 18, 21]
    listed = options(MMBERT, full_layers=tuple(map(str, full)))
    assert [layer for layer in range(22) if encoder.is_full(listed, layer)] == full
    assert all(encoder.is_full(options(GTE), layer) for layer in range(4))


def test_frequencies_of_rotary_positions():
    """gte-multilingual-base scales a base of 20000 by 8 (NTK). With heads of 64, this equals a base
    of 160000 with each frequency divided by 8^(1/32)."""
    scaled = options(GTE, hidden=64, heads=1, rotary_factor=8 ** (1 / 32))
    actual = encoder.frequencies(scaled, 160000.0)
    ntk = (20000.0 * 8) ** -(np.arange(0, 64, 2) / 64) / 8 ** (2 / 64)
    np.testing.assert_allclose(actual, ntk, rtol=1e-14)
    plain = encoder.frequencies(options(GTE, hidden=64, heads=1), 160000.0)
    np.testing.assert_allclose(plain / actual, 1.0671, rtol=1e-4)
    assert plain[0] == 1 and len(plain) == 32


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre", "position_bias": "gated", "token_types": 2},
        {"position_bias": "t5", "absolute_positions": False, "language_embeddings": "all"},
        {"norm": "embeddings", "norm_type": "unbiased", "feed_forward": "geglu", "biases": ()},
        {"norm_type": "rms", "key_value_heads": 2, "biases": ("attention", "outer", "inner")},
    ],
)
def test_parameter_shapes_equal_those_of_the_jax_encoder(changes):
    model = Model(layers=3, hidden=32, heads=4, intermediate=48, positions=42, **changes)
    result = jax.eval_shape(lambda: jax_encoder.init(jax.random.key(0), model, 50, 2))
    assert jax.tree.map(lambda leaf: leaf.shape, result) == shapes(model, 50, 2)
