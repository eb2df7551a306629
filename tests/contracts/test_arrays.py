"""The check of array arguments: which arrays it accepts, and what its errors say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.contracts.arrays import check

ZEROS = jnp.zeros((3, 4))


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": ("float32 [n, m]", ZEROS)},
        {"x": ("float [n, 4]", ZEROS.astype(jnp.bfloat16))},
        {"x": ("int [n, n]", np.zeros((3, 3), np.uint16))},
        {"x": ("bool []", np.bool_(True)), "y": ("int32 []", 3), "z": ("float32 []", 0.5)},
        {"x": ("int32 [n]", np.zeros(3, np.int64))},
        {"x": ("any [...]", ZEROS), "y": ("float [..., m, k]", jnp.zeros((2, 3, 3)))},
        {"x": ("float [rows..., m]", ZEROS), "y": ("float [rows...]", ZEROS[:, 0])},
        {"x": ("float [n]", ZEROS[0]), "y": ("int32 [n]", None)},
        {"x": ("key [n]", jax.random.split(jax.random.key(0), 3))},
    ],
)
def test_arrays_that_match_their_specification_pass(arrays):
    check("f", **arrays)


@pytest.mark.parametrize(
    "arrays, words",
    [
        ({"x": ("float [n]", ZEROS)}, ("x of f must be float [n]", "rank 2", "expected 1")),
        ({"x": ("float [..., n, m, k]", ZEROS)}, ("rank 2", "expected 3")),
        ({"x": ("float [n, 5]", ZEROS)}, ("(3, 4)", "expected (3, 5)")),
        ({"x": ("float [n, n]", ZEROS)}, ("(3, 4)", "expected (3, 3)")),
        ({"x": ("int [n, m]", ZEROS)}, ("float32",)),
        ({"x": ("int32 [n]", np.zeros(3, np.uint16))}, ("uint16", "expected int32")),
        ({"x": ("bool [n, m]", ZEROS)}, ("float32", "expected bool")),
        ({"x": ("key [n, m]", ZEROS)}, ("jax.random.key",)),
        (
            {"x": ("float [n, m]", ZEROS), "y": ("float [m]", ZEROS[:, 0])},
            ("y of f must be float [m], with m=4", "(3,)"),
        ),
        (
            {"x": ("float [n..., m]", ZEROS), "y": ("float [n...]", ZEROS[0])},
            ("y of f must be float [n...], with n...=3",),
        ),
    ],
)
def test_arrays_that_do_not_match_are_refused_and_named(arrays, words):
    with pytest.raises(AssertionError) as error:
        check("f", **arrays)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    "transform", [jax.jit, jax.vmap, jax.checkpoint, lambda f: lambda x: jax.lax.map(f, x)]
)
def test_the_check_works_in_transformed_functions_and_adds_no_operation(transform):
    def function(x):
        check("f", x=("float [..., 4]", x))
        return 2 * x

    program = jax.make_jaxpr(transform(function))(ZEROS)
    assert str(program) == str(jax.make_jaxpr(transform(lambda x: 2 * x))(ZEROS)).replace(
        "<lambda>", "function"
    )
    with pytest.raises(AssertionError, match="x of f must be"):
        jax.eval_shape(transform(function), jnp.zeros((3, 5)))
