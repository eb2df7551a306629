"""Losses that compare the cosines of examples with scores: of a teacher, or of people."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import check
from xlj.sharding import devices

_NEVER = -1e9


class Scored(NamedTuple):
    """Results for each example, float32 [...]; zeros for examples that are not counted."""

    losses: jax.Array
    correct: jax.Array
    is_counted: jax.Array


def order_pairs(predicted: jax.Array, targets: jax.Array, is_real: jax.Array) -> Scored:
    """Computes CoSENT, the loss of the order of predicted scores (Su, 2022).

    The loss is log(1 + sum exp(s_j - s_i)) over all i and j whose target scores are t_i > t_j. Each
    item has the loss of the whole batch, so that the mean is this loss. An item is correct if its
    score exceeds those of all items with lower targets. Inside `devices.per_device`, the items of
    all devices are compared.

    Args:
      predicted: s, for example cosines divided by a temperature, float32 [items].
      targets: t, float32 [items]; NaN for items without a score, which are not counted.
      is_real: False for slots without an item, bool [items].
    """
    check(
        "order_pairs",
        predicted=("float32 [items]", predicted),
        targets=("float32 [items]", targets),
        is_real=("bool [items]", is_real),
    )
    is_real &= jnp.isfinite(targets)
    targets = jnp.where(is_real, targets, 0)
    others, targets_of_others, real_others = (
        devices.gather_rows(x) for x in (predicted, targets, is_real)
    )

    def of_item(item: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        own, target, is_real_item = item
        is_lower = real_others & is_real_item & (target > targets_of_others)
        difference = jnp.where(is_lower, others - own, _NEVER)
        return jax.nn.logsumexp(difference), difference.max()

    # One item at a time would be slow, all at once would need [items, items].
    sums, worst = jax.lax.map(
        jax.checkpoint(of_item), (predicted, targets, is_real), batch_size=_batch(len(others))
    )
    total = jax.nn.logsumexp(devices.gather_rows(sums))
    is_counted = (is_real & (total > _NEVER / 2)).astype(jnp.float32)
    return Scored(jax.nn.softplus(total) * is_counted, (worst < 0) * is_counted, is_counted)


def _batch(others: int) -> int:
    """Returns how many items are compared at once: differences of at most 64 MiB in float32."""
    return max(1, (1 << 24) // others)


def compare_lists(
    student: tuple[jax.Array, jax.Array],
    teacher: tuple[jax.Array, jax.Array],
    is_own: jax.Array,
    is_real: jax.Array,
    loss: str,
    temperature: float,
) -> Scored:
    """Compares a student's scores of the positive and the negatives of each example with a
    teacher's scores.

    Let s and t be the scores of student and teacher. With `kl`, the loss is the Kullback-Leibler
    divergence of softmax(s) from softmax(t / temperature), over the positive and the negatives.
    With `margin_mse`, it is the mean over the negatives n of ((s_p - s_n) - (t_p - t_n))^2, where p
    is the positive (Hofstätter et al., 2020).

    Args:
      student: scores of the positives, float32 [rows, slots], and of the negatives for each
        example, float32 [rows, slots, negatives].
      teacher: scores of the positives, float32 [rows, slots], and of the negatives, float32
        [rows, negatives]; NaN if a text has no score.
      is_own: whether a negative belongs to an example, bool [rows, slots, negatives].
      is_real: False for slots without an example, bool [rows, slots].
      loss: `kl` or `margin_mse`.
      temperature: of the teacher.
    """
    check(
        "compare_lists",
        positives=("float32 [rows, slots]", student[0]),
        negatives=("float32 [rows, slots, negatives]", student[1]),
        of_positives=("float32 [rows, slots]", teacher[0]),
        of_negatives=("float32 [rows, negatives]", teacher[1]),
        is_own=("bool [rows, slots, negatives]", is_own),
        is_real=("bool [rows, slots]", is_real),
    )
    right, others = student
    is_own = is_own & jnp.isfinite(teacher[1])[:, None]
    is_real = is_real & jnp.isfinite(teacher[0]) & is_own.any(2)
    # Scores that are not counted must be finite, or the gradient would be NaN.
    target = jnp.where(is_real, teacher[0], 0)
    targets = jnp.where(is_own, teacher[1][:, None], 0)
    if loss == "kl":
        of_teacher = _log_softmax(target / temperature, targets / temperature, is_own)
        of_student = _log_softmax(right, others, is_own)
        probabilities = [jnp.exp(x) for x in of_teacher]
        losses = probabilities[0] * (of_teacher[0] - of_student[0])
        gaps = jnp.where(is_own, probabilities[1] * (of_teacher[1] - of_student[1]), 0)
        losses += gaps.sum(2)
    else:
        gaps = (right[..., None] - others) - (target[..., None] - targets)
        squares = jnp.where(is_own, gaps * gaps, 0)
        losses = squares.sum(2) / jnp.maximum(is_own.sum(2), 1)
    is_counted = is_real.astype(jnp.float32)
    correct = right > jnp.where(is_own, others, _NEVER).max(2)
    return Scored(losses * is_counted, correct * is_counted, is_counted)


def _log_softmax(
    right: jax.Array, others: jax.Array, is_own: jax.Array
) -> tuple[jax.Array, jax.Array]:
    others = jnp.where(is_own, others, _NEVER)
    total = jnp.logaddexp(right, jax.nn.logsumexp(others, axis=2))
    return right - total, others - total[..., None]
