"""What products and barriers become on each kind of device."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest

from xlj.models import lowering
from xlj.objectives.vocabulary import kept_logits
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


@pytest.mark.parametrize("backend, width", [("cpu", 70), ("gpu", 128), ("tpu", 70)])
def test_kept_logits_are_aligned_on_gpus(backend, width, monkeypatch):
    monkeypatch.setattr(devices, "platform", lambda: backend)
    table, bias, labels = jnp.ones((70, 8)), jnp.ones(70), jnp.zeros(3, jnp.int32)
    of = partial(kept_logits.cross_entropy, bias=bias, labels=labels, dtype=BFLOAT16)
    program = str(jax.make_jaxpr(lambda x, table: of(x, table)[0])(jnp.ones((3, 8)), table))
    assert f"[3,{width}]" in program
