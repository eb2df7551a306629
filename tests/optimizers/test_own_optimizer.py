"""An optimizer of a user, registered outside xlj: selected by name, trained, saved and resumed."""

import chex
import jax
import jax.numpy as jnp
import optax
import pytest

from xlj import optimizers
from xlj.checkpoints import reading
from xlj.config import Config, ConfigError, Optimizer, parse, registered_optimizers
from xlj.config import optimizers as table
from xlj.data.rows.store import Corpus
from xlj.optimizers import Rates
from xlj.sharding import meshes
from xlj.training import loop, start, state

READS = ("optimizer.b1", "optimizer.b2")


def lion(options):
    return optax.scale_by_lion(options.b1, options.b2)


def momentum(options):
    """Returns two transformations that have states, one of them a counter."""
    return optax.chain(
        optax.trace(0.9), optax.scale_by_schedule(lambda count: 1 / (1 + 0.1 * count))
    )


@pytest.fixture(autouse=True)
def own():
    table.register_optimizer("lion", f"{__name__}:lion", READS)
    table.register_optimizer("momentum", f"{__name__}:momentum")
    yield
    for name in ("lion", "momentum"):
        del table._REGISTERED[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lion", "momentum", "stable_adamw", "muon"])
def test_an_optimizer_trains_and_resumes_bit_for_bit(tiny, store, tmp_path, name, devices):
    devices(8 if name == "muon" else 1)
    tiny.objectives.tlm.batch_size, tiny.train.eval_rows = 0, 0
    tiny.optimizer.name, tiny.optimizer.schedule = name, "constant"
    tiny.optimizer.average = 0.9
    tiny.train.steps = 4
    loop.train(start.prepare(parse(tiny), tmp_path / "whole", store))
    tiny.train.steps = 2
    loop.train(start.prepare(parse(tiny), tmp_path / "parts", store))
    tiny.train.steps = 4
    loop.train(start.prepare(parse(tiny), tmp_path / "parts", store))
    whole, parts = (reading.find(tmp_path / run).meta for run in ("whole", "parts"))
    assert whole["digests"] == parts["digests"] and whole["step"] == 4
    assert whole["tensors"]["average"] == whole["tensors"]["params"]
    moments = [n for n in whole["tensors"]["optimizer"] if n.endswith("embeddings/word")]
    assert len(moments) == (1 if name in ("lion", "momentum") else 2)
    first_digests = reading.find(tmp_path / "parts/checkpoints/2").meta["digests"]
    changed = [
        n for n in moments if first_digests["optimizer"][n] != whole["digests"]["optimizer"][n]
    ]
    assert changed == moments


@pytest.mark.parametrize("name", ["lion", "momentum", "adamw", "stable_adamw"])
def test_non_finite_gradients_change_no_state(drawn, name):
    optimizer = optimizers.make(Config(optimizer=Optimizer(name=name)))
    params = drawn(0)

    def update(gradients, state, finite):
        return optimizer.update(gradients, state, params, finite=finite, rates=Rates(1.0, 0.1))[1]

    before = update(drawn(1), optimizer.init(params), jnp.array(True))
    broken = jax.tree.map(lambda x: x.at[0].set(jnp.nan), drawn(2))
    chex.assert_trees_all_equal(update(broken, before, jnp.array(False)), before)
    after = update(drawn(2), before, jnp.array(True))
    assert all(
        (a != b).any() for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True)
    )


def test_moments_of_an_own_optimizer_have_the_sharding_of_the_parameters(tiny, store):
    tiny.optimizer.name, tiny.mesh.fsdp = "lion", 4
    config = parse(tiny)
    mesh = meshes.make_mesh(config)
    abstract = state.abstract(config, Corpus.of(store), mesh)
    moments = abstract.optimizer[0].mu
    chex.assert_trees_all_equal_structs(moments, abstract.params)
    for moment, param in zip(
        jax.tree.leaves(moments), jax.tree.leaves(abstract.params), strict=True
    ):
        assert moment.sharding == param.sharding
    assert abstract.optimizer[0].count.sharding.is_fully_replicated


def test_keys_that_an_optimizer_does_not_read_are_errors(tiny):
    tiny.optimizer.name, tiny.optimizer.b2 = "lion", 0.99
    assert parse(tiny, {"optimizer.b2"}).optimizer.b2 == 0.99
    tiny.optimizer.name = "momentum"
    # A recipe may set keys that only other optimizers read.
    assert parse(tiny).optimizer.name == "momentum"
    with pytest.raises(
        ConfigError,
        match="optimizer.b2 is set to 0.99 but has no effect, because optimizer.name is "
        "'momentum', not adamw or stable_adamw or muon or lion",
    ):
        parse(tiny, {"optimizer.b2"})


def test_unknown_names_are_refused_with_the_choices(tiny):
    tiny.optimizer.name = "lyon"
    with pytest.raises(
        ConfigError,
        match="optimizer.name is 'lyon'; it must be one of adamw, stable_adamw, muon, lion, "
        "momentum; did you mean",
    ):
        parse(tiny)


def test_a_name_can_be_registered_for_only_one_optimizer():
    table.register_optimizer("lion", f"{__name__}:lion", READS)
    with pytest.raises(ValueError, match="an optimizer adamw is already registered: xlj"):
        table.register_optimizer("adamw", f"{__name__}:lion")
    assert registered_optimizers()["adamw"].implementation.startswith("xlj.")


@pytest.mark.slow
def test_a_run_does_not_resume_with_another_optimizer(tiny, store, tmp_path):
    tiny.train.steps = 2
    loop.train(start.prepare(parse(tiny), tmp_path, store))
    tiny.train.steps, tiny.optimizer.name = 4, "lion"
    with pytest.raises(reading.CheckpointError, match="optimizer.name: 'adamw' -> 'lion'") as error:
        loop.train(start.prepare(parse(tiny), tmp_path, store))
    assert "allow_change" not in str(error.value)
