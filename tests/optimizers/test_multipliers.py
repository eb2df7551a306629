"""Factors of learning rates and weight decay by parameter name, by layer and for frozen parts."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj import optimizers
from xlj.config import Config, ConfigError, Model, Optimizer, parse
from xlj.models import encoder
from xlj.optimizers import multipliers
from xlj.sharding import meshes
from xlj.sharding.trees import named_leaves
from xlj.training import memory
from xlj.training.schedule import Schedule

MODEL = Model(layers=3, hidden=8, heads=2, intermediate=16, positions=10, position_bias="gated")


@pytest.fixture
def params():
    initial = encoder.init(jax.random.key(0), MODEL, 20, 1)
    initial["classification_head"] = {"output": {"kernel": jnp.ones((8, 2))}}
    return initial


def rates(params, **options):
    """Returns the factors of the learning rate of each parameter, by name."""
    ones = jax.tree.map(jnp.ones_like, params)
    return named_leaves(multipliers.scale_by_rates(Optimizer(**options), ones))


def test_each_layer_has_a_lower_learning_rate_than_the_layer_above(params):
    for name, factors in rates(params, layer_decay=0.5).items():
        part = name.partition("/")[0]
        if part == "layers":
            for layer, factor in enumerate((1 / 8, 1 / 4, 1 / 2)):
                np.testing.assert_allclose(factors[layer], factor)
        else:
            expected = 1 / 16 if part in ("embeddings", "position_bias") else 1
            assert (factors == expected).all(), name


def test_the_second_layer_has_the_first_row_of_a_norm_that_the_first_layer_lacks():
    norm, kernel = jnp.ones((2, 4)), jnp.ones((3, 4, 4))
    layers = {"attention_norm": {"scale": norm}, "attention": {"query": {"kernel": kernel}}}
    factors = rates({"layers": layers}, layer_decay=0.5)
    assert factors["layers/attention_norm/scale"].tolist() == [[1 / 4] * 4, [1 / 2] * 4]
    assert factors["layers/attention/query/kernel"][:, 0, 0].tolist() == [1 / 8, 1 / 4, 1 / 2]


def test_no_factors_leave_the_updates_untouched(params):
    for leaf, same in zip(
        jax.tree.leaves(multipliers.scale_by_rates(Optimizer(), params)),
        jax.tree.leaves(params),
        strict=True,
    ):
        assert leaf is same


def test_the_first_rule_that_matches_the_whole_name_applies(params):
    factors_by_name = rates(
        params,
        rate_multipliers=(
            "layers=4",
            r"layers/attention/(query|key)/.*=0.5",
            "layers/.*=0.25",
            "word=8",
        ),
    )
    for name, factors in factors_by_name.items():
        is_half = name.startswith(("layers/attention/query/", "layers/attention/key/"))
        expected = 0.5 if is_half else 0.25 if name.startswith("layers/") else 1
        assert (factors == expected).all(), name


def test_factors_of_several_keys_are_multiplied_and_frozen_parts_stay_frozen(params):
    actual = rates(params, rate_multipliers=(".*=3",), layer_decay=0.5, frozen=("embeddings",))
    assert (actual["layers/attention/query/kernel"][-1] == 1.5).all()
    assert (actual["classification_head/output/kernel"] == 3).all()
    assert (actual["embeddings/word"] == 0).all()


def test_frozen_parameters_stay_when_their_updates_are_not_finite():
    """A user's optimizer may divide by the gradient, which is 0 for frozen parameters."""
    updates = {"embeddings": {"word": jnp.array([jnp.nan])}, "x_head": {"bias": jnp.array([2.0])}}
    scaled = multipliers.scale_by_rates(Optimizer(frozen=("embeddings",)), updates)
    assert scaled["embeddings"]["word"].tolist() == [0]
    assert scaled["x_head"]["bias"].tolist() == [2]


def test_only_biases_scales_and_tables_have_no_weight_decay(params):
    factors = named_leaves(multipliers.decay_factors(Optimizer(), params))
    undecayed = {name for name, factor in factors.items() if not factor}
    ends = ("/bias", "/scale", "/table")
    assert undecayed == {name for name in factors if name.endswith(ends)} != set()
    assert set(factors.values()) == {0.0, 1.0}


def test_decay_rules_of_the_user_come_before_the_defaults(params):
    options = Optimizer(decay_multipliers=("embeddings/word=0", ".*norm/.*=2"))
    factors = named_leaves(multipliers.decay_factors(options, params))
    assert factors["embeddings/word"] == 0 and factors["embeddings/norm/scale"] == 2
    assert factors["layers/attention/query/bias"] == 0
    assert factors["layers/attention/query/kernel"] == 1


def test_weight_decay_is_multiplied_by_its_factor_and_the_learning_rate(params):
    config = Config(
        optimizer=Optimizer(
            learning_rate=0.5,
            schedule="constant",
            weight_decay=0.25,
            decay_multipliers=("classification_head/.*=2",),
            rate_multipliers=(".*/output/kernel=0.125",),
        )
    )
    optimizer, zeros = optimizers.make(config), jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(
        zeros,
        optimizer.init(params),
        params,
        finite=jnp.array(True),
        rates=Schedule(config, None).at(3).rates,
    )
    head = updates["classification_head"]["output"]["kernel"]  # of ones
    np.testing.assert_allclose(head, -0.5 * 0.125 * 0.25 * 2)
    word = updates["embeddings"]["word"]
    np.testing.assert_allclose(word, -0.5 * 0.25 * params["embeddings"]["word"], rtol=1e-6)


def test_frozen_parameters_have_no_gradient(params):
    options = Optimizer(rate_multipliers=(".*/query/.*=0", "final.*=2"), frozen=("embeddings",))

    def loss(params):
        stopped = multipliers.stop_frozen(options, params)
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(stopped))

    for name, gradient in named_leaves(jax.grad(loss)(params)).items():
        is_frozen = name.startswith("embeddings/") or "/query/" in name
        assert (gradient == (0 if is_frozen else 1)).all(), name


def test_a_layer_decay_of_0_stops_no_gradient(params):
    """The gradient norm then includes all parameters."""
    stopped = multipliers.stop_frozen(Optimizer(layer_decay=0.0), params)
    assert jax.tree.leaves(stopped)[0] is jax.tree.leaves(params)[0]


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("rate_multipliers", "embeddings/.*", "'embeddings/.*' is not REGEX=FACTOR"),
        ("rate_multipliers", "a(=1", "'a(=1' is not REGEX=FACTOR: missing )"),
        ("decay_multipliers", ".*=much", "'.*=much' is not REGEX=FACTOR: could not convert"),
        ("decay_multipliers", ".*=-1", "'.*=-1' must be REGEX=FACTOR with a factor of at least 0"),
        ("rate_multipliers", ".*=nan", "'.*=nan' must be REGEX=FACTOR with a factor of at least 0"),
        ("rate_multipliers", ".*=inf", "'.*=inf' must be REGEX=FACTOR with a factor of at least 0"),
        ("rate_multipliers", "=2", "'=2' must be REGEX=FACTOR"),
    ],
)
def test_invalid_rules_are_refused(tiny, key, value, message):
    tiny.optimizer[key] = value
    with pytest.raises(ConfigError, match=re.escape(f"optimizer.{key}: {message}")):
        parse(tiny)


@pytest.mark.parametrize("key", ["rate_multipliers", "decay_multipliers"])
def test_a_rule_that_matches_no_parameter_is_refused_before_any_work(tiny, key):
    tiny.optimizer[key] = "embeddings/.*=0.5,embedings/word=0"
    config = parse(tiny)
    message = rf"{key}: embedings/word=0 matches no parameter name; .*such as .*embeddings/word"
    with pytest.raises(ConfigError, match=message):
        memory.check_fits(
            config, memory.expected_sizes(config, None, None), meshes.make_mesh(config)
        )


@pytest.mark.parametrize("pattern", ["embeddings", "word"])
def test_a_rule_that_matches_only_a_part_of_a_name_is_refused(pattern):
    options = Optimizer(rate_multipliers=(".*/word=1", f"{pattern}=2"))
    with pytest.raises(ConfigError, match=f"{pattern}=2 matches no parameter name; .*/word$"):
        multipliers.check(options, {"embeddings": {"word": 0}})


def test_decay_multipliers_without_weight_decay_are_an_error(tiny):
    tiny.optimizer.weight_decay, tiny.optimizer.decay_multipliers = 0.0, ".*=1"
    with pytest.raises(ConfigError, match="has no effect, because optimizer.weight_decay is 0$"):
        parse(tiny)
