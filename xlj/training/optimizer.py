"""AdamW as the papers use it: schedules by step, clipping, no decay of biases and norms."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import KeyPath
from jax.typing import ArrayLike

from xlj.config import FREEZABLE, Config, Optimizer
from xlj.contracts.arrays import Leaf
from xlj.models.dense import cpu_layout_barrier
from xlj.models.encoder import Params
from xlj.sharding.trees import name_of


def learning_rate(config: Config) -> Callable[[ArrayLike], jax.Array]:
    """The learning rate of a step (0-based): linear warm-up, then the configured schedule.

    linear: from the peak after the warm-up to 0 at `train.steps`. constant: the peak. wsd: the
    peak, then linear to 0 over the last `decay_steps` (Hu et al., 2024, warm-up-stable-decay).
    """
    options, steps = config.optimizer, config.train.steps
    peak, warmup = options.learning_rate, options.warmup_steps
    begin = {"linear": warmup, "constant": steps, "wsd": steps - options.decay_steps}[
        options.schedule
    ]

    def rate(step: ArrayLike) -> jax.Array:
        rise = (step + 1) / warmup if warmup else 1.0
        fall = (steps - step) / (steps - begin) if begin < steps else 1.0
        return peak * jnp.clip(jnp.minimum(rise, fall), 0.0, 1.0)

    return rate


def transform(options: Optimizer) -> optax.GradientTransformation:
    """AdamW (Loshchilov and Hutter, 2019) without its learning rate, which the step multiplies in.

    Its updates are to be *subtracted*, times the learning rate.
    """
    return optax.chain(
        optax.scale_by_adam(options.b1, options.b2, options.epsilon),
        optax.add_decayed_weights(options.weight_decay, decayed),
    )


def update(
    options: Optimizer,
    gradients: Params,
    state: optax.OptState,
    params: Params,
    finite: jax.Array,
) -> tuple[Params, optax.OptState]:
    """What `transform(options).update` gives, and its state; if not `finite`, the state as it was.

    The state is guarded before the updates are made of it: then XLA writes each moment in place.
    Guarded behind them, as the whole state would be, old and new of all of them are alive at once.

    Returns:
      updates, as finite as the gradients are, and the new state.
    """
    adam, *rest = state

    def moment(old: Params, decay: float, order: int) -> Params:
        new = optax.tree.update_moment(gradients, old, decay, order)
        return jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, old)

    count = adam.count + finite.astype(adam.count.dtype)
    mu, nu = moment(adam.mu, options.b1, 1), moment(adam.nu, options.b2, 2)
    first, second = (1 - beta ** jnp.maximum(count, 1) for beta in (options.b1, options.b2))

    def of_leaf(mean: jax.Array, square: jax.Array, param: jax.Array, decays: bool) -> jax.Array:
        change = mean / first / (jnp.sqrt(square / second) + options.epsilon)
        return change + options.weight_decay * param if decays else change

    updates = jax.tree.map(of_leaf, mu, nu, params, decayed(params))
    return updates, (adam._replace(count=count, mu=mu, nu=nu), *rest)


def decayed(params: Params) -> Params:
    """True for the parameters that weight decay applies to: all but biases and norms.

    Of a relative position bias, its `table` is a bias and `gates/scale` a scale, while
    `gates/kernel` is a projection and decays as others do (ours; T5 and XLM-E do not say).
    """

    def is_decayed(path: KeyPath, _: Leaf) -> bool:
        return name_of(path).rpartition("/")[2] not in ("bias", "scale", "table")

    return jax.tree_util.tree_map_with_path(is_decayed, params)


def change_frozen(
    tree: Params, frozen: tuple[str, ...], change: Callable[[jax.Array], jax.Array]
) -> Params:
    """Parameters, or their updates, with a change of each array in the parts named `frozen`."""
    names = {name for part in frozen for name in FREEZABLE[part]}
    return {n: jax.tree.map(change, part) if n in names else part for n, part in tree.items()}


def by_layer(updates: Params, decay: float) -> Params:
    """Updates with layer-wise decay of the learning rate: layer l of L (from 1) has
    decay^(L + 1 - l) times the rate of the heads (and of a final norm), the embeddings and a
    position bias decay^(L + 1).

    Source: ERNIE-M's fine-tuning scripts (Clark et al., 2020, ELECTRA, has one power more
    everywhere below the head).
    """
    if decay == 1.0:
        return updates
    layers = jax.tree.leaves(updates["layers"])[0].shape[0]
    factors = decay ** jnp.arange(layers, 0, -1, dtype=jnp.float32)
    scaled = dict(updates)
    scaled["layers"] = jax.tree.map(
        lambda leaf: leaf * factors.reshape(-1, *[1] * (leaf.ndim - 1)), updates["layers"]
    )
    for name in ("embeddings", "position_bias"):
        if name in updates:
            scaled[name] = jax.tree.map(lambda leaf: leaf * decay ** (layers + 1), updates[name])
    return scaled


def global_norm(gradients: Params) -> jax.Array:
    """The length of all gradients as one vector, float32 [].

    Of gradients that a CPU takes for others than AdamW's: it would write all their squares, since
    AdamW takes these too.
    """
    return optax.tree.norm(cpu_layout_barrier(gradients))


def clip(gradients: Params, norm: jax.Array, limit: float) -> Params:
    """Gradients whose global norm is `norm`, scaled down to at most `limit` (0 means no limit)."""
    factor = jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-12)) if limit else 1.0
    return jax.tree.map(lambda gradient: gradient * factor, gradients)
