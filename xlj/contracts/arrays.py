"""Checks of rank, shape and dtype, written as in docstrings: `int32 [rows, length]`."""

from functools import cache
from typing import Any, NamedTuple, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

Array = jax.Array | np.ndarray
PyTree = Any
"""A tree of arrays (or of their shapes), in dicts, tuples and dataclasses, as `jax.tree` accepts
it. Python's types cannot express this."""
Tree = TypeVar("Tree")
"""A tree of arrays, for functions that return a tree of the same structure."""
Leaf = jax.Array | np.ndarray | jax.ShapeDtypeStruct
"""An array, or its shape and type."""

Specified = tuple[str, PyTree]
"""The specification of an array, and the array; None, and trees without arrays, are not checked."""

_KINDS: dict[str, DTypeLike] = {"float": jnp.floating, "int": jnp.integer, "bool": jnp.bool_}
_OPEN = "..."


def check(function: str, **arrays: Specified) -> None:
    """Checks the array arguments of a function.

        check("gather", hidden=("float [rows, n, hidden]", x), positions=("int32 [rows, k]", p))

    Checks run while JAX traces, also under jit, scan, vmap and remat, so compiled programs do not
    contain them.

    A kind is a dtype, `float`, `int` or `key` of any width, or `any`. An axis is a size, or a name,
    which must have the same size everywhere. `...` matches any axes; `NAME...` matches the same
    axes everywhere. None is not checked. NumPy's int64 and float64 count as the types to which JAX
    converts them.

    Args:
      function: its name in messages.
      arrays: by parameter: (specification, array).

    Raises:
      AssertionError: with the array, the function, the specification, and the known sizes of axes.
    """
    axes: dict[str, tuple[int, ...]] = {}
    for name, (specified, array) in arrays.items():
        if array is not None:
            _check_one(f"{name} of {function}", specified, array, axes)


def check_ids(function: str, ids: NamedTuple, **more: Specified) -> None:
    """Checks a tuple whose fields are int32 [rows, length] each, and more arrays, like `check`."""
    fields = {name: ("int32 [rows, length]", array) for name, array in ids._asdict().items()}
    check(function, **fields, **more)


def _check_one(name: str, specified: str, array: Array, known: dict[str, tuple[int, ...]]) -> None:
    kind, names = _parsed(specified)
    sizes = ", ".join(f"{axis}={_shown(size)}" for axis, size in known.items() if axis in names)
    message = f"{name} must be {specified}" + (f", with {sizes}" if sizes else "")
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
    """Parses `int32 [rows, length]` into the kind and the names of axes."""
    kind, _, axes = specified.partition(" ")
    inside = axes.removeprefix("[").removesuffix("]")
    return kind, tuple(inside.split(", ")) if inside else ()
