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
"""A tree of arrays, or of their shapes, that `jax.tree` accepts: nested dicts, tuples and
dataclasses. Python's types cannot express this, so the type is `Any`."""
Tree = TypeVar("Tree")
"""A tree of arrays, for functions that return a tree of the same structure."""
Leaf = jax.Array | np.ndarray | jax.ShapeDtypeStruct
"""An array, or its shape and dtype."""

Specified = tuple[str, PyTree]
"""(specification, array). The array may be None; then `check` does not check it."""

_KINDS: dict[str, DTypeLike] = {"float": jnp.floating, "int": jnp.integer, "bool": jnp.bool_}
_OPEN = "..."


def check(function: str, **arrays: Specified) -> None:
    """Checks the array arguments of a function.

        check("gather", hidden=("float [rows, n, hidden]", x), positions=("int32 [rows, k]", p))

    Checks run while JAX traces, also under jit, scan, vmap and remat, so compiled programs do not
    contain them.

    A specification is a kind and a list of axes:

    - Kinds: a dtype such as `int32`; `float`, `int` and `bool` of any width; `key` for random keys;
      or `any`. NumPy's int64 and float64 count as the dtypes to which JAX converts them.
    - Axes: a number is a size. An axis with a name must have the same size in all arrays of the
      call. `...` matches any number of axes. `NAME...` also matches any number of axes, and their
      sizes must be the same in all arrays of the call.

    Args:
      function: name of the function, for the message.
      arrays: the name of each parameter, and (specification, array). None is not checked.

    Raises:
      AssertionError: if an array does not match. The message names the array, the function, the
        specification and the sizes of its named axes.
    """
    axes: dict[str, tuple[int, ...]] = {}
    for name, (specified, array) in arrays.items():
        if array is not None:
            _check_one(f"{name} of {function}", specified, array, axes)


def check_ids(function: str, ids: NamedTuple, **more: Specified) -> None:
    """Checks the fields of a tuple, int32 [rows, length] each, and more arrays.

    Args:
      function: name of the function, for the message.
      ids: the tuple; a field may be None.
      more: the name of each further parameter, and (specification, array).

    Raises:
      AssertionError: if an array does not match (`check`).
    """
    fields = {name: ("int32 [rows, length]", array) for name, array in ids._asdict().items()}
    check(function, **fields, **more)


def _check_one(name: str, specified: str, array: Array, known: dict[str, tuple[int, ...]]) -> None:
    """Checks one array.

    Args:
      name: the names of the array and of the function, for the message.
      known: the sizes of the axes that earlier arrays of the call named. This function adds the
        sizes of axes that the array names first.
    """
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
    """Formats the size of an axis, or the sizes of several axes, for a message."""
    return str(sizes[0]) if len(sizes) == 1 else str(list(sizes))


@cache
def _parsed(specified: str) -> tuple[str, tuple[str, ...]]:
    """Parses `int32 [rows, length]` into the kind and the names of axes."""
    kind, _, axes = specified.partition(" ")
    inside = axes.removeprefix("[").removesuffix("]")
    return kind, tuple(inside.split(", ")) if inside else ()
