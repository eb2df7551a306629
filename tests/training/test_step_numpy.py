"""Steps of small objectives equal NumPy: scales, gradients, AdamW, states and progress."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from references import losses as reference
from references.optimizers import StableAdamW

from xlj import config as schema
from xlj import optimizers
from xlj.config import parse
from xlj.objectives.objective import Loss, LossSums, Objective
from xlj.sharding import meshes, trees
from xlj.training.schedule import Schedule
from xlj.training.state import Progress, State
from xlj.training.step import make_train_step, row_rngs

ROWS, BROKEN, STEEP = 4, 99, 98
WEIGHTS = {"a_one": 3.0, "a_two": 0.5, "b": 2.0}
SEED, RATE, WARMUP, CLIP, DECAY, LAYER_DECAY = 5, 0.1, 2, 0.05, 0.3, 0.5
B1, B2, EPSILON, AVERAGE = 0.8, 0.9, 0.01, 0.6


def linear_objective():
    """An objective with losses and gradients linear in the parameters and in random numbers."""

    def corrupt(rows, rngs):
        return rows["tokens"].astype(jnp.float32), jax.vmap(jax.random.uniform)(rngs)

    def loss(params, state, inputs, rngs):
        tokens, noise = inputs
        dropped = jax.vmap(jax.random.uniform)(rngs)
        broken = jnp.where(tokens[:, 0] == BROKEN, jnp.nan, 0)
        word = params["embeddings"]["word"]
        steep = jnp.sqrt(jnp.where(tokens[:, 0] == STEEP, 0 * word.sum(), 1)) - 1
        first = noise * (tokens @ word) + broken + steep
        second = dropped * (tokens @ params["layers"]["kernel"].sum(0))
        zero = jnp.zeros_like(noise)
        return {
            "a_one": LossSums(first, tokens[:, 0], zero + 1),
            "a_two": LossSums(second, zero + 2, zero + 3),
        }

    return Objective(
        losses={"a_one": Loss(WEIGHTS["a_one"]), "a_two": Loss(WEIGHTS["a_two"])},
        corrupt=corrupt,
        count=lambda inputs: {"a_one": inputs[0][:, 0], "a_two": 0 * inputs[1] + 2},
        loss=loss,
    )


def evolving_objective():
    """An objective whose targets depend on its state and the parameters; its state follows the
    parameters."""

    def targets(params, state, inputs, by_microbatch):
        return by_microbatch(lambda x: x * state["w"] + params["x_head"]["bias"], inputs)

    def loss(params, state, inputs, rngs):
        sums = inputs @ params["x_head"]["bias"] + state["w"].sum()
        return {"b": LossSums(sums, jnp.ones_like(sums), jnp.zeros_like(sums))}

    return Objective(
        losses={"b": Loss(WEIGHTS["b"])},
        corrupt=lambda rows, rngs: rows["tokens"].astype(jnp.float32),
        count=lambda inputs: {"b": jnp.ones(len(inputs))},
        loss=loss,
        targets=targets,
        init_state=lambda params: {"w": 2 * params["x_head"]["bias"]},
        update=lambda state, params, inputs: {
            "w": state["w"] + params["x_head"]["bias"] + inputs.sum(0)
        },
    )


def step_and_config(normalisation, accumulation, optimizer):
    config = schema.default()
    config.data.languages, config.data.mono = "en", "phrasebook:{language}"
    config.objectives.normalisation, config.train.gradient_accumulation_steps = (
        normalisation,
        accumulation,
    )
    config.objectives.mmlm.batch_size = 8
    config.train.seed, config.train.steps = SEED, 100
    options = config.optimizer
    options.name, options.average = optimizer, AVERAGE
    options.schedule, options.learning_rate, options.warmup_steps = "constant", RATE, WARMUP
    options.clip_norm, options.weight_decay, options.layer_decay = CLIP, DECAY, LAYER_DECAY
    options.b1, options.b2, options.epsilon = B1, B2, EPSILON
    config = parse(config)
    mesh = meshes.make_mesh(config, jax.devices()[:1])
    return make_train_step(
        config, {"a": linear_objective(), "b": evolving_objective()}, mesh, {"b": 2}
    ), config


def first_params():
    rng = np.random.default_rng(0)
    shapes = {"embeddings/word": 3, "layers/kernel": (2, 3), "x_head/bias": 3}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def nested(flat):
    params = {}
    for name, values in flat.items():
        part, leaf = name.split("/")
        params[part] = {leaf: jnp.asarray(values, jnp.float32)}
    return params


def uniform(purpose, step):
    slots = jnp.arange(ROWS)
    return np.asarray(jax.vmap(jax.random.uniform)(row_rngs(SEED, purpose, step, slots)), float)


class Reference:
    """The same step in NumPy, in float64."""

    def __init__(self, normalisation, optimizer):
        self.normalisation, self.optimizer, self.stable = normalisation, optimizer, {}
        self.params, self.history = first_params(), []
        self.w = 2 * self.params["x_head/bias"]
        self.moments = {name: (0 * x, 0 * x) for name, x in self.params.items()}
        self.updates = self.step = self.skipped = self.in_a_row = self.since = 0
        self.loss = self.norm = 0.0
        self.sums = {name: np.zeros(3) for name in WEIGHTS}

    def run_step(self, a, b):
        params = self.params
        if self.step == 2:
            self.w = 2 * params["x_head/bias"]
        targets = b * self.w + params["x_head/bias"]
        noise, dropped = uniform("a/corruption", self.step), uniform("a/dropout", self.step)
        one, two = noise[:, None] * a, dropped[:, None] * a
        sums = {
            "a_one": [(one @ params["embeddings/word"]).sum(), a[:, 0].sum(), ROWS],
            "a_two": [(two @ params["layers/kernel"].sum(0)).sum(), 2 * ROWS, 3 * ROWS],
            "b": [(targets @ params["x_head/bias"] + self.w.sum()).sum(), ROWS, 0],
        }
        counts = {name: count for name, (_, count, _) in sums.items()}
        scales = reference.scales(self.normalisation, WEIGHTS, counts)
        gradients = {
            "embeddings/word": scales["a_one"] * one.sum(0),
            "layers/kernel": scales["a_two"] * np.stack([two.sum(0)] * 2),
            "x_head/bias": scales["b"] * targets.sum(0),
        }
        norm = np.sqrt(sum((x**2).sum() for x in gradients.values()))
        self.step += 1
        if np.isin(a, (BROKEN, STEEP)).any():
            self.skipped, self.in_a_row = self.skipped + 1, self.in_a_row + 1
            return
        self.in_a_row, self.since, self.norm = 0, self.since + 1, self.norm + norm
        self.loss += sum(scales[name] * part[0] for name, part in sums.items())
        for name, part in sums.items():
            self.sums[name] += part
        self.adam({name: x * min(1, CLIP / norm) for name, x in gradients.items()})
        self.w = self.w + self.params["x_head/bias"] + targets.sum(0)

    def adam(self, gradients):
        self.updates += 1
        rate, new = RATE * min(1, self.step / WARMUP), {}
        of_layer = {"embeddings/word": LAYER_DECAY**3, "x_head/bias": 1}
        of_layer["layers/kernel"] = np.array([[LAYER_DECAY**2], [LAYER_DECAY]])
        for name, x in self.params.items():
            m, v = self.moments[name]
            m = B1 * m + (1 - B1) * gradients[name]
            v = B2 * v + (1 - B2) * gradients[name] ** 2
            self.moments[name] = m, v
            mean, square = m / (1 - B1**self.updates), v / (1 - B2**self.updates)
            decay = 0 if name.endswith("bias") else DECAY
            if self.optimizer == "stable_adamw":
                new[name] = self.stable_update(
                    name, x, gradients[name], rate * of_layer[name], decay
                )
                continue
            update = mean / (np.sqrt(square) + EPSILON) + decay * x
            new[name] = x - rate * of_layer[name] * update
        self.params = new
        self.history.append(new)

    def average(self):
        """Computes the average of the parameters after each finite step."""
        weights = AVERAGE ** np.arange(len(self.history))[::-1]
        return {n: np.average([x[n] for x in self.history], 0, weights) for n in self.params}

    def stable_update(self, name, x, gradient, rates, decay):
        parts = list(zip(x, gradient, rates[:, 0], strict=True)) if x.ndim > 1 else None
        updated = [
            self.stable.setdefault((name, number), StableAdamW(B1, B2, EPSILON)).update(
                param, of_param, rate, decay
            )
            for number, (param, of_param, rate) in enumerate(parts or [(x, gradient, rates)])
        ]
        return np.stack(updated) if parts else updated[0]


def new_state(config):
    params, zero = nested(first_params()), jnp.zeros((), jnp.int32)
    return State(
        params=params,
        optimizer=optimizers.make(config).init(params),
        average=params,
        objectives={"b": evolving_objective().init_state(params)},
        progress=Progress(
            zero, zero, zero, zero, jnp.zeros(()), jnp.zeros(()),
            {name: LossSums(*[jnp.zeros(())] * 3) for name in WEIGHTS},
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    "normalisation, accumulation, optimizer",
    [("per_objective", 2, "adamw"), ("global", 1, "adamw"), ("global", 1, "stable_adamw")],
)
def test_steps_equal_those_of_numpy(normalisation, accumulation, optimizer):
    step, config = step_and_config(normalisation, accumulation, optimizer)
    step, state, numpy_step = jax.jit(step), new_state(config), Reference(normalisation, optimizer)
    rng = np.random.default_rng(1)
    for number in range(5):
        a, b = rng.integers(1, 9, (2, ROWS, 3))
        if number in (1, 3):  # the loss or only the gradient is not finite: the step is skipped
            a[0, 0] = BROKEN if number == 1 else STEEP
        languages = jnp.zeros((ROWS, 2), jnp.int32)
        batch = {
            n: {"tokens": jnp.asarray(x), "languages": languages} for n, x in (("a", a), ("b", b))
        }
        state = step(state, batch, np.uint32(SEED), Schedule(config, None).at(number).rates)
        numpy_step.run_step(a.astype(float), b.astype(float))
        chex.assert_trees_all_close(
            trees.named_leaves(state.params), numpy_step.params, rtol=1e-4, atol=1e-5
        )
        chex.assert_trees_all_close(
            trees.named_leaves(state.average), numpy_step.average(), rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(state.objectives["b"]["w"], numpy_step.w, rtol=1e-4)
        actual, expected = state.progress, numpy_step
        counters = actual.step, actual.skipped, actual.skipped_in_a_row, actual.steps_since_log
        assert counters == (expected.step, expected.skipped, expected.in_a_row, expected.since)
        np.testing.assert_allclose(actual.loss, expected.loss, rtol=1e-4)
        np.testing.assert_allclose(actual.gradient_norm, expected.norm, rtol=1e-4)
        for name, sums in expected.sums.items():
            part = actual.losses[name]
            np.testing.assert_allclose((part.sum, part.count, part.correct), sums, rtol=1e-4)
