"""A step has the same result on any mesh and with any number of microbatches."""

import dataclasses
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from references import losses as reference

from xlj import config as schema
from xlj.config import FREEZABLE, parse, registered
from xlj.data.rows.batches import Batches
from xlj.data.rows.preparing import prepare_rows
from xlj.data.rows.store import Corpus
from xlj.data.tokenizer.layout import PAD
from xlj.models import encoder
from xlj.objectives.objective import Loss, build, build_all
from xlj.sharding import meshes, trees
from xlj.sharding.devices import AXES, ROWS, RULES, on_mesh, rule_of
from xlj.training import state
from xlj.training.schedule import Schedule
from xlj.training.step import Microbatches, loss_scales, make_train_step, with_targets


def prepare(config, store, devices=1):
    """Returns the mesh, the objectives, and a function that puts a batch on the mesh."""
    mesh = meshes.make_mesh(config, jax.devices()[:devices])
    objectives = build_all(config, Corpus.of(store))
    batches = Batches(store, config)
    rows = jax.NamedSharding(mesh, ROWS)

    def batch(step):
        return {
            name: jax.device_put(batches.read(name, step, np.arange(shape[0])), rows)
            for name, shape in batches.shapes(step).items()
        }

    return mesh, objectives, batch


def step_arguments(config, step=0):
    """Returns the arguments of a step other than state and batch."""
    return config.train.seed, Schedule(config, None).at(step).rates


def make_step(config, store, devices=1):
    """Returns the jitted step and the shardings of the state."""
    mesh, objectives, _ = prepare(config, store, devices)
    sharding = state.sharding(config, Corpus.of(store), mesh)
    return jax.jit(make_train_step(config, objectives, mesh), out_shardings=sharding), sharding


@pytest.fixture(scope="module")
def plain_steps():
    """The step of `tiny` by the text of its config: its tests share one compiled program."""
    return {}


@pytest.fixture
def plain_step(tiny, store, plain_steps):
    """The config `tiny`, its jitted step, and the shardings of the state."""
    config = parse(tiny)
    key = repr(config)
    if key not in plain_steps:
        plain_steps[key] = make_step(config, store)
    return config, *plain_steps[key]


def run(config, store, devices=1, steps=2):
    """Returns the states after some steps, on the first `devices` devices."""
    _, _, batch = prepare(config, store, devices)
    corpus = Corpus.of(store)
    step, sharding = make_step(config, store, devices)
    states = [jax.jit(lambda: state.init(config, corpus, 0), out_shardings=sharding)()]
    for number in range(steps):
        states.append(step(states[-1], batch(number), *step_arguments(config, number)))
    return states


def masks(config, store, devices):
    """Returns the inputs of the objectives at step 7, and the dropout keys."""
    mesh, objectives, batch = prepare(config, store, devices)
    current = jax.jit(lambda: state.init(config, Corpus.of(store), 0))()
    current = dataclasses.replace(
        current, progress=dataclasses.replace(current.progress, step=jnp.int32(7))
    )
    microbatches = Microbatches(config.train.gradient_accumulation_steps)
    result = jax.jit(
        on_mesh(
            mesh,
            lambda batch: with_targets(objectives, config.train.seed, microbatches, current, batch),
        )
    )(batch(7))
    return jax.tree.map(lambda x: np.asarray(jax.random.key_data(x) if is_key(x) else x), result)


def is_key(x):
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def constant_batch(token):
    """Returns batches of both objectives in which each token is `token`."""
    languages = jnp.zeros((16, 2), jnp.int32)
    return {
        name: {"tokens": jnp.full((16, length), token), "languages": languages}
        for name, length in (("mmlm", 32), ("tlm", 48))
    }


@pytest.mark.parametrize(
    "replica, fsdp, gathers",
    [
        pytest.param(4, 1, ["layer"], marks=pytest.mark.slow),
        pytest.param(8, 1, ["layer"], marks=pytest.mark.slow),
        pytest.param(2, 4, ["layer", "step"], marks=pytest.mark.extra),
    ],
)
def test_a_mesh_changes_no_mask_and_no_loss(tiny, store, replica, fsdp, gathers):
    tiny.train.gradient_accumulation_steps = 2
    single, single_masks = run(parse(tiny), store, 1), masks(parse(tiny), store, 1)
    tiny.mesh.replica, tiny.mesh.fsdp = replica, fsdp
    chex.assert_trees_all_equal(masks(parse(tiny), store, replica * fsdp), single_masks)
    for tiny.mesh.gather in gathers:
        sharded = run(parse(tiny), store, replica * fsdp)
        for a, b in zip(single[1:], sharded[1:], strict=True):
            np.testing.assert_allclose(b.progress.loss, a.progress.loss, rtol=1e-5)
            assert int(a.progress.losses["mmlm"].count) == int(b.progress.losses["mmlm"].count) > 0
        word = sharded[-1].params["embeddings"]["word"]
        assert word.sharding.shard_shape(word.shape)[1] == word.shape[1] // fsdp


@pytest.mark.parametrize(
    "normalisation", ["global", pytest.param("per_objective", marks=pytest.mark.slow)]
)
def test_accumulation_does_not_change_the_gradient(tiny, store, normalisation):
    """Dropout is on, and the microbatches predict unequal numbers of tokens."""
    tiny.objectives.normalisation = normalisation
    tiny.optimizer.b1, tiny.optimizer.clip_norm = 0.0, 0.0
    whole = run(parse(tiny), store, steps=1)[1]
    tiny.train.gradient_accumulation_steps = 4
    parts = run(parse(tiny), store, steps=1)[1]
    np.testing.assert_allclose(parts.progress.loss, whole.progress.loss, rtol=1e-6)
    np.testing.assert_allclose(
        parts.progress.gradient_norm, whole.progress.gradient_norm, rtol=1e-6
    )
    # Adam's first moment with b1 = 0 is the gradient itself.
    gradients = [jnp.concatenate([x.ravel() for x in jax.tree.leaves(s.optimizer[0].mu)])
                 for s in (whole, parts)]  # fmt: skip
    error = jnp.linalg.norm(gradients[0] - gradients[1]) / jnp.linalg.norm(gradients[0])
    assert error < 1e-6


def test_loops_end_with_the_last_microbatch_that_has_rows():
    """Row r of twelve is in microbatch r mod 4. One program serves all sizes of batches. It
    computes only one empty microbatch and uses its result for all empty microbatches."""
    compiled, computed = [], []

    def triple(part):
        jax.debug.callback(computed.append, part[0])
        return 3 * part + 1

    @jax.jit
    def compute(rows, filled):
        compiled.append(filled)
        parts = Microbatches(4).with_filled(filled)
        total, count = parts.sum(lambda part: (part.sum(), jnp.int32(1)), (), rows)
        return total, count, parts.map(triple, rows)

    numbers = jnp.arange(1, 13)
    for filled in (1, 2, 3, 4):
        rows = jnp.where(jnp.arange(12) % 4 < filled, numbers, 0)
        total, count, mapped = compute(rows, filled)
        assert (int(total), int(count)) == (int(rows.sum()), filled)
        np.testing.assert_array_equal(mapped, 3 * rows + 1)
        jax.effects_barrier()
        assert len(computed) == min(filled + 1, 4)
        computed.clear()
    assert len(compiled) == 1


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_a_step_that_skips_empty_microbatches_equals_one_that_computes_them(tiny, devices):
    """A program that stops after the microbatches with rows equals a program that computes all
    empty rows. The objectives on one device sample, generate text and have a queue. Two devices
    share the parameters."""
    tiny.train.gradient_accumulation_steps, tiny.train.batch_warmup = 4, 4
    tiny.mesh.fsdp, tiny.model.layers, tiny.objectives.tlm.batch_size = devices, 1, 0
    if devices == 1:
        tiny.objectives.xlco.batch_size, tiny.objectives.xlco.queue = 16, 32
        tiny.objectives.btmlm.batch_size = 16
        tiny.model.language_embeddings = "predicted"
    config = parse(tiny)
    store = prepare_rows(config)
    mesh, objectives, batch = prepare(config, store, devices)
    sharding = state.sharding(config, Corpus.of(store), mesh)
    initial = jax.jit(lambda: state.init(config, Corpus.of(store), 0), out_shardings=sharding)()
    step = jax.jit(make_train_step(config, objectives, mesh), out_shardings=sharding)
    rows = batch(2)
    assert config.schedule[0].microbatches(2) == 2
    bounded = step(initial, rows, *step_arguments(config, 2), np.int32(2))
    plain = step(initial, rows, *step_arguments(config, 2))
    assert_close(bounded, plain, rtol=1e-5)
    np.testing.assert_allclose(
        bounded.progress.gradient_norm, plain.progress.gradient_norm, rtol=1e-5
    )
    filled = int((np.asarray(rows["mmlm"]["tokens"]) != PAD).any(1).sum())
    assert filled == 8 and 0 < int(bounded.progress.losses["mmlm"].count) < filled * 32 * 0.3
    # The same program computes a whole batch next.
    whole = step(bounded, batch(5), *step_arguments(config, 5), np.int32(4))
    assert_close(whole, step(plain, batch(5), *step_arguments(config, 5)), rtol=1e-4)


def assert_close(a, b, rtol):
    """Checks that the losses and states of all objectives are nearly equal in two states."""
    assert set(a.progress.losses) == set(b.progress.losses)
    for name, sums in a.progress.losses.items():
        other = b.progress.losses[name]
        assert float(sums.count) == float(other.count) > 0, name
        np.testing.assert_allclose(other.sum, sums.sum, rtol=rtol, err_msg=name)
    chex.assert_trees_all_close(b.objectives, a.objectives, rtol=1e-4, atol=1e-5)


def keep_only(every, *names):
    """Turns off all other objectives of `every`, and the parts of the model that only they use."""
    for name in set(registered()) - set(names):
        every.objectives[name].batch_size = 0
    if "distillation" not in names:
        every.objectives.distillation.teacher = ""
    if not {"mrtd", "trtd"} & set(names):
        every.objectives.generator = schema.default().objectives.generator
    for name in {"xlco", "contrast", "sentence_distillation", "text_distillation"} - set(names):
        every.objectives[name] = schema.default().objectives[name]
    if "contrast" not in names:
        every.data.examples, every.data.passage_length = "", schema.default().data.passage_length
    if "btmlm" not in names:
        every.model.language_embeddings = "none"


ENDS = ("", "_tlm", "_align", "_generator", "_discriminator")
HALVES = [sorted(registered())[0::2], sorted(registered())[1::2]]


def vectors_of(width, sentences):
    """Returns a teacher's vectors, which depend on the lengths of the sentences."""
    lengths = np.array([[len(sentence)] for sentence in sentences])
    return np.sin(lengths * np.arange(1, width + 1)).astype(np.float32)


@pytest.mark.extra
@pytest.mark.usefixtures("free_memory")
@pytest.mark.parametrize(
    "names, gather", [(HALVES[0], "layer"), (HALVES[1], "step")], ids=map("-".join, HALVES)
)
def test_every_objective_is_the_same_on_a_mesh_and_under_accumulation(every, names, gather):
    """Two steps with many objectives, so that queues and momentum encoders are read too."""
    keep_only(every, *names)
    every.model.layers, every.optimizer.learning_rate = 1, 1e-4
    store = prepare_rows(parse(every), teach=lambda kind: partial(vectors_of, every.model.hidden))
    single = run(parse(every), store)
    losses = single[-1].progress.losses
    assert {loss.removesuffix(end) for loss in losses for end in ENDS} >= set(names)
    assert len(losses) == {HALVES[0][0]: 12, HALVES[1][0]: 8}[names[0]]
    assert set(single[-1].objectives) == {"xlco", "distillation"} & set(names)
    every.mesh.replica, every.mesh.fsdp, every.mesh.gather = 2, 4, gather
    every.train.gradient_accumulation_steps = 2
    sharded = run(parse(every), store, 8)
    assert_close(single[1], sharded[1], 1e-5)
    assert_close(single[2], sharded[2], 1e-4)
    np.testing.assert_allclose(
        sharded[1].progress.gradient_norm, single[1].progress.gradient_norm, rtol=1e-5
    )
    if "xlco" in names:
        queue = sharded[-1].objectives["xlco"]["queue"]
        assert queue.sharding.shard_shape(queue.shape)[0] == 32 // 8


@pytest.mark.slow
def test_a_phase_of_zero_weights_fills_the_queue_and_changes_no_parameter(every):
    keep_only(every, "xlco")
    every.objectives.xlco.weight = 0.0
    config = parse(every)
    before, *_, after = run(config, prepare_rows(config))
    chex.assert_trees_all_equal(before.params, after.params)
    assert float(after.progress.gradient_norm) == 0
    assert int(after.objectives["xlco"]["filled"]) == 32
    assert (np.abs(after.objectives["xlco"]["queue"]).sum(1) > 0).all()


def test_all_parts_of_the_encoder_can_be_frozen():
    assert {part for parts in FREEZABLE.values() for part in parts} == set(encoder.PARTS)


def test_frozen_parts_do_not_change(tiny, store):
    tiny.optimizer.frozen, tiny.optimizer.weight_decay = "layers", 0.1
    tiny.model.position_bias, tiny.model.norm = "gated", "pre"
    before, *_, after = run(parse(tiny), store)
    for part in ("layers", "position_bias", "final_norm"):
        chex.assert_trees_all_equal(before.params[part], after.params[part])
    for part in ("embeddings", "prediction_head"):
        for a, b in zip(*(jax.tree.leaves(s.params[part]) for s in (before, after)), strict=True):
            assert (a != b).any()


@pytest.mark.slow
def test_bfloat16_gives_nearly_the_same_loss(tiny, store):
    single = run(parse(tiny), store)[-1]
    tiny.model.dtype = "bfloat16"
    half = run(parse(tiny), store)[-1]
    np.testing.assert_allclose(half.progress.loss, single.progress.loss, rtol=5e-3)
    assert float(half.progress.loss) != float(single.progress.loss)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(half.params))


def test_microbatches_have_unequal_counts(tiny, store):
    """`test_accumulation_does_not_change_the_gradient` relies on this."""
    config = parse(tiny)
    rows = Batches(store, config).read("mmlm", 0, np.arange(16))["tokens"]
    counts = (rows > 3).reshape(4, 4, -1).sum((0, 2))
    assert len(set(counts.tolist())) > 1


def test_loss_scales_of_both_normalisations():
    counts = {"a": jnp.float32(10), "b": jnp.float32(30)}
    weights = {"a": 1.0, "b": 50.0}
    each = loss_scales("per_objective", weights, counts)
    assert float(each["a"]) == pytest.approx(1 / 10) and float(each["b"]) == pytest.approx(50 / 30)
    together = loss_scales("global", weights, counts)
    assert float(together["a"]) == pytest.approx(1 / 40)
    assert float(together["b"]) == pytest.approx(50 / 40)
    without = loss_scales("global", {"a": 1.0, "b": 0.0}, counts)  # as released, with --no_tlm_loss
    assert (float(without["a"]), float(without["b"])) == (pytest.approx(1 / 10), 0)
    empty = loss_scales("per_objective", weights, dict.fromkeys(counts, jnp.float32(0)))
    assert all(np.isfinite(scale) for scale in empty.values())


@pytest.mark.parametrize("normalisation", ["per_objective", "global"])
def test_loss_scales_equal_those_of_numpy(normalisation):
    """Losses of weight 0 are not in the common denominator; no loss is divided by a count of 0."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        weights = {name: float(rng.choice([0.0, 1.0, 50.0])) for name in "abcd"}
        counts = {name: float(rng.choice([0, 7, 300])) for name in weights}
        scales = loss_scales(normalisation, weights, jax.tree.map(jnp.float32, counts))
        expected = reference.scales(normalisation, weights, counts)
        assert {name: float(scale) for name, scale in scales.items()} == pytest.approx(expected)


def test_objectives_come_in_the_order_of_their_options(tiny):
    config, corpus = parse(tiny), Corpus(400, ("en", "de", "sw"), (3, 2, 1))
    active = config.objectives_on()
    for options in (active, dict(reversed(active.items()))):
        assert list(build(options, config.model, corpus)) == list(options)


def test_a_step_that_is_not_finite_is_skipped_and_counted(plain_step, store):
    config, step, sharding = plain_step
    initial = jax.jit(lambda: state.init(config, Corpus.of(store), 0), out_shardings=sharding)()
    good = step(initial, constant_batch(5), *step_arguments(config))
    broken = jax.tree.map(lambda x: x, good)
    broken.params["embeddings"]["norm"]["scale"] = jnp.full(config.model.hidden, jnp.nan)
    batch = constant_batch(5)
    after = step(broken, batch, *step_arguments(config))
    assert int(after.progress.skipped) == int(after.progress.skipped_in_a_row) == 1
    assert int(after.progress.step) == 2
    assert float(after.progress.loss) == float(broken.progress.loss)
    chex.assert_trees_all_equal(after.params, broken.params)


def test_an_objective_that_has_an_update_but_no_state_adds_no_state(tiny, store):
    config = parse(tiny)
    mesh, objectives, batch = prepare(config, store)
    updating = {
        name: dataclasses.replace(objective, update=lambda old, params, inputs: old)
        for name, objective in objectives.items()
    }
    step = make_train_step(config, updating, mesh, dict.fromkeys(updating, 0))
    before = jax.eval_shape(lambda: state.init(config, Corpus.of(store), 0))
    assert jax.eval_shape(step, before, batch(0), *step_arguments(config)) == before
    unweighted = {
        name: dataclasses.replace(objective, losses={name: Loss(0.0)})
        for name, objective in objectives.items()
    }
    step = make_train_step(config, unweighted, mesh)
    assert jax.eval_shape(step, before, batch(0), *step_arguments(config)) == before


@pytest.mark.parametrize("accumulation", [1, 2])
def test_accumulation_computes_one_microbatch_at_a_time(tiny, store, accumulation):
    tiny.train.gradient_accumulation_steps = accumulation
    config = parse(tiny)
    mesh, objectives, batch = prepare(config, store)
    shapes = jax.eval_shape(lambda: state.init(config, Corpus.of(store), 0))
    step = make_train_step(config, objectives, mesh)
    rows, length = batch(0)["mmlm"]["tokens"].shape
    program = str(jax.make_jaxpr(step)(shapes, batch(0), *step_arguments(config)))
    hidden = f"f32[{rows // accumulation},{length},{config.model.hidden}]"
    assert hidden in program
    assert (f"f32[{rows},{length},{config.model.hidden}]" in program) == (accumulation == 1)


@pytest.mark.parametrize("evolves, expected", [(False, 7), (True, 0)])
def test_states_that_never_change_are_not_reinitialised(tiny, store, evolves, expected):
    """A teacher stays as at the start of the run; a momentum encoder is initialised again."""
    config = parse(tiny)
    mesh, objectives, batch = prepare(config, store)
    name = next(iter(objectives))
    changes = {"update": lambda old, params, inputs: old} if evolves else {}
    objectives = objectives | {
        name: dataclasses.replace(
            objectives[name],
            losses={name: Loss(0.0)},
            init_state=lambda params: {"value": jnp.zeros(())},
            **changes,
        )
    }
    step = make_train_step(config, {name: objectives[name]}, mesh, {name: 0})
    before = dataclasses.replace(
        state.init(config, Corpus.of(store), 0), objectives={name: {"value": jnp.full((), 7.0)}}
    )
    after = jax.jit(step)(before, {name: batch(0)[name]}, *step_arguments(config))
    assert float(after.objectives[name]["value"]) == expected


def test_rows_without_text_give_a_finite_step(plain_step, store):
    config, step, sharding = plain_step
    initial = jax.jit(lambda: state.init(config, Corpus.of(store), 0), out_shardings=sharding)()
    after = step(initial, constant_batch(1), *step_arguments(config))
    assert int(after.progress.skipped) == 0
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(after.params))


def test_microbatches_stay_on_the_devices_of_their_rows():
    mesh = jax.make_mesh((2, 4), AXES, (AxisType.Auto,) * 2)
    microbatches, rows = Microbatches(4), np.arange(192.0, dtype=np.float32).reshape(64, 3)

    def compute(x):
        total = microbatches.sum(lambda x: jnp.square(x["x"]).sum(), (), {"x": x})
        return microbatches.map(jnp.square, x), microbatches.slots(64), total

    placed = jax.device_put(rows, jax.NamedSharding(mesh, ROWS))
    program = jax.jit(on_mesh(mesh, compute)).lower(placed).compile()
    squares, slots, total = program(placed)
    np.testing.assert_array_equal(squares, rows**2)
    np.testing.assert_array_equal(slots, np.arange(64))
    np.testing.assert_allclose(total, (rows**2).sum(), rtol=1e-6)
    assert squares.sharding.shard_shape((64, 3)) == (8, 3)
    assert slots.sharding.shard_shape((64,)) == (8,)
    kinds = ("all-gather", "all-to-all", "collective-permute")
    assert not [name for name in kinds if name in program.as_text()]
    for parts, has_loop in ((1, False), (4, True)):
        split = Microbatches(parts)
        for function in (split.map, lambda f, x, split=split: split.sum(f, (), x)):
            text = jax.jit(partial(function, jnp.square)).lower(placed).as_text()
            assert ("while" in text) == has_loop, (parts, function)


@pytest.mark.slow
def test_16_rows_are_memorised(tiny, store):
    tiny.objectives.tlm.batch_size = 0
    tiny.objectives.mmlm.batch_size = 16
    tiny.model.hidden, tiny.model.intermediate = 64, 128
    tiny.model.dropout = tiny.model.attention_dropout = 0.0
    tiny.train.steps = 1200
    tiny.optimizer.learning_rate = 5e-3
    tiny.optimizer.warmup_steps = 20
    config = parse(tiny)
    corpus = Corpus.of(store)
    mesh = meshes.make_mesh(config, jax.devices()[:1])
    step = jax.jit(make_train_step(config, build_all(config, corpus), mesh))
    batch = {"mmlm": Batches(store, config).read("mmlm", 0, np.arange(16))}
    current = state.init(config, corpus, 0)
    for number in range(config.train.steps):
        before = current.progress
        current = step(current, batch, *step_arguments(config, number))
    count = current.progress.losses["mmlm"].count - before.losses["mmlm"].count
    loss = (current.progress.losses["mmlm"].sum - before.losses["mmlm"].sum) / count
    assert float(loss) < 0.05


def test_every_partitioning_rule_matches_an_array(every):
    config, corpus = parse(every), Corpus(400, ("en", "de", "sw"), (3, 2, 1))
    abstract = jax.eval_shape(lambda: state.init(config, corpus, 0))
    names = [*trees.named_leaves(abstract.params)]
    names += [*trees.named_leaves(abstract.objectives)]
    names += ["activations/hidden", "activations/microbatches"]
    objectives = build_all(config, corpus).values()
    every_rule = RULES + tuple(rule for o in objectives for rule in o.rules)
    used = {rule_of(name, every_rule)[0] for name in names}
    assert used == {rule for rule, _ in every_rule}


@pytest.mark.slow
def test_states_of_objectives_start_from_the_parameters_of_their_phase(every):
    """XLCO is switched on at step 1: its momentum encoder starts from that step's parameters, not
    from the initial ones."""
    keep_only(every, "xlco")
    every.optimizer.learning_rate = 0.1
    every.objectives.xlco.momentum = 1.0
    config = parse(every)
    store = prepare_rows(config)
    mesh, objectives, batch = prepare(config, store)
    step = jax.jit(make_train_step(config, objectives, mesh, {"xlco": 1}))
    first = step(state.init(config, Corpus.of(store), 0), batch(0), *step_arguments(config, 0))
    second = step(first, batch(1), *step_arguments(config, 1))
    word = first.params["embeddings"]["word"]
    assert (np.asarray(first.objectives["xlco"]["momentum"]["embeddings"]["word"]) != word).any()
    xlco_state = second.objectives["xlco"]
    np.testing.assert_array_equal(xlco_state["momentum"]["embeddings"]["word"], word)
    assert int(xlco_state["filled"]) == 16  # the earlier entries of the queue are dropped
