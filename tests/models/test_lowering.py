"""What products and barriers become on each kind of device."""

import jax
import jax.numpy as jnp
import pytest

from xlj.models import lowering
from xlj.sharding import devices

BFLOAT16 = jnp.dtype("bfloat16")
EVERYWHERE = {"cpu", "gpu", "tpu"}


def test_products_of_float32_have_full_precision_on_every_device():
    assert lowering.precision_of(jnp.dtype("float32")) == jax.lax.Precision.HIGHEST
    assert lowering.precision_of(BFLOAT16) is None


@pytest.mark.parametrize(
    "function, platforms",
    [
        (lowering.cpu_layout_barrier, {"cpu"}),
        (lowering.recomputed, EVERYWHERE),
        (lowering.together_on_gpus, {"gpu"}),
        (lambda x: lowering.rounded(x, BFLOAT16), EVERYWHERE),
        (lambda x: lowering.rounded_on_gpus(x, BFLOAT16), {"gpu"}),
    ],
)
def test_barriers_are_used_only_where_they_help(function, platforms, monkeypatch):
    """The barrier of a rounded array is after the rounding."""
    for backend in EVERYWHERE:
        monkeypatch.setattr(devices, "platform", lambda backend=backend: backend)
        program = str(jax.make_jaxpr(lambda x: function(x))(jnp.ones(3)))
        assert ("optimization_barrier" in program) == (backend in platforms)
        assert program.find("convert") <= max(0, program.find("optimization_barrier"))
