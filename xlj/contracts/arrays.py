"""Checks of rank, shape and dtype, in the words of the docstrings: `int32 [rows, length]`."""

from functools import cache
from typing import Any, NamedTuple, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

Array = jax.Array | np.ndarray
PyTree = Any
"""Arrays, or what stands for them, in dicts, tuples and dataclasses: all that `jax.tree` takes
apart, which types cannot tell from other things."""
Tree = TypeVar("Tree")
"""Such a tree, where another of the same structure is given back."""
Leaf = jax.Array | np.ndarray | jax.ShapeDtypeStruct
"""An array, or its shape and type."""

Specified = tuple[str, PyTree]
"""What an array is to be, and the array; None, or a tree without arrays, is not looked at."""

_KINDS: dict[str, DTypeLike] = {"float": jnp.floating, "int": jnp.integer, "bool": jnp.bool_}
_OPEN = "..."


def check(function: str, **arrays: Specified) -> None:
    """Checks what a function is given. Nothing of it is left in a compiled program: shapes and
    dtypes are known while JAX traces, under jit, scan, vmap and remat too.

        check("gather", hidden=("float [rows, n, hidden]", x), positions=("int32 [rows, k]", p))

    A kind is a dtype, or `float`, `int` and `key` of any width, or `any`. An axis is a size, or a
    name, which stands for the same size wherever it is; `...` stands for any axes, `NAME...` for
    the same ones wherever it is. An array that is None is not there; int64 and float64 of NumPy
    count as what JAX makes of them.

    Args:
      function: what messages call it.
      arrays: by parameter: (what it is to be, the array).

    Raises:
      AssertionError: it says which array of which function is not what it is to be, and what is
        known of the axes by then.
    """
    axes: dict[str, tuple[int, ...]] = {}
    for name, (specified, array) in arrays.items():
        if array is not None:
            _check_one(f"{name} of {function}", specified, array, axes)


def check_ids(function: str, ids: NamedTuple, **more: Specified) -> None:
    """Checks a tuple whose fields are int32 [rows, length] each, and more arrays, as `check`."""
    fields = {name: ("int32 [rows, length]", array) for name, array in ids._asdict().items()}
    check(function, **fields, **more)


def _check_one(name: str, specified: str, array: Array, known: dict[str, tuple[int, ...]]) -> None:
    kind, names = _parsed(specified)
    sizes = ", ".join(f"{axis}={_shown(size)}" for axis, size in known.items() if axis in names)
    message = f"{name} is to be {specified}" + (f", with {sizes}" if sizes else "")
    if kind == "key":
        is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        chex.assert_equal(is_key, True, custom_message=f"{message} (jax.random.key)")
    elif kind != "any":
        traced = jax.ShapeDtypeStruct((), jax.dtypes.canonicalize_dtype(jnp.result_type(array)))
        chex.assert_type(traced, _KINDS.get(kind, kind), custom_message=message)

    shape, several = jnp.shape(array), any(axis.endswith(_OPEN) for axis in names)
    least = len(names) - several
    chex.assert_rank(array, max(least, len(shape)) if several else least, custom_message=message)
    expected: tuple[int, ...] = ()
    for axis in names:
        width = len(shape) - least if axis.endswith(_OPEN) else 1
        here = shape[len(expected) : len(expected) + width]
        if axis.isdigit():
            here = (int(axis),)
        elif axis != _OPEN:
            here = known.setdefault(axis, here)
        expected += here
    chex.assert_shape(array, expected, custom_message=message)


def _shown(sizes: tuple[int, ...]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else str(list(sizes))


@cache
def _parsed(specified: str) -> tuple[str, tuple[str, ...]]:
    """`int32 [rows, length]` as a kind and names of axes."""
    kind, _, axes = specified.partition(" ")
    inside = axes.removeprefix("[").removesuffix("]")
    return kind, tuple(inside.split(", ")) if inside else ()
