"""Pools hidden vectors to sentence vectors, with NumPy or JAX."""

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from xlj.data.tokenizer.layout import BOS, EOS, PAD

if TYPE_CHECKING:  # types only: the ONNX backend pools without JAX
    import jax

Array = TypeVar("Array", np.ndarray, "jax.Array")


def pool(
    numpy: Any, hidden: Array, tokens: Array, modes: tuple[str, ...], not_pooled: int = 0
) -> Array:
    """Pools hidden vectors [rows, length, hidden] to [rows, modes * hidden].

    Padding and the first `not_pooled` tokens of each row are excluded.

    Args:
      numpy: the module of the arrays: numpy, or jax.numpy.
      tokens: int [rows, length].
      modes: of `choices.POOLINGS` or `sentence_modules.POOLINGS`.
    """
    place = numpy.arange(tokens.shape[1])
    is_pooled = (tokens != PAD) & (place >= not_pooled)  # [rows, length]
    mask = is_pooled.astype(hidden.dtype)[..., None]  # [rows, length, 1]
    rows = numpy.arange(len(tokens))
    pooled = []
    for mode in modes:
        if mode in ("first", "cls"):
            pooled.append(hidden[rows, is_pooled.argmax(1)])
        elif mode == "lasttoken":
            last = numpy.where(is_pooled, place, 0).max(1)
            pooled.append(hidden[rows, last] * is_pooled.any(1)[:, None])
        elif mode == "max":
            pooled.append(numpy.where(mask > 0, hidden, -numpy.inf).max(1))
        else:
            weights = mask
            if mode == "text":
                weights = mask * ((tokens != BOS) & (tokens != EOS))[..., None]
            count = numpy.maximum(weights.sum(1), 1)
            divisor = numpy.sqrt(count) if mode == "mean_sqrt_len_tokens" else count
            pooled.append((hidden * weights).sum(1) / divisor)
    return pooled[0] if len(pooled) == 1 else numpy.concatenate(pooled, -1)
