"""Compiles fused attention for a chip that is not installed, for each head size, and prints JSON:
`compiled_attention.py TOPOLOGY LENGTH SIZE...`"""

import itertools
import json
import os
import re
import sys

from xlj.tools.planning import topologies

os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
topologies.use_compilers()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding  # noqa: E402

from xlj.config import ConfigError  # noqa: E402
from xlj.models import dropout  # noqa: E402
from xlj.models.attention import kernels, tpu, triton  # noqa: E402
from xlj.models.attention.interface import Mask, Operands, Request  # noqa: E402
from xlj.models.positions import bias_tiles  # noqa: E402
from xlj.sharding.devices import AXES, REPLICATED, ROWS, on_mesh  # noqa: E402
from xlj.tools.planning.hlo import Program, stated_costs  # noqa: E402
from xlj.tools.planning.products import products  # noqa: E402

ROWS_PER_DEVICE, HEADS = 2, 4


KINDS = {"plain": (False, None), "gated": (True, None), "local gated": (True, 64)}
"""By name: whether attention has a gated bias, and its window."""


def compiled(devices, length, size, dtype, gated, window):
    mesh = Mesh(np.array(devices).reshape(1, -1), AXES, axis_types=(AxisType.Auto,) * 2)

    def array(shape, dtype, spec=ROWS):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    rows = ROWS_PER_DEVICE * len(devices)
    arrays = [array((rows, length, HEADS, size), dtype)] * 3
    ids = [array((rows, length), jnp.int32)] * 2
    fused = kernels.Fused({"gpu": triton, "tpu": tpu}[devices[0].platform])
    line = gates = None
    if gated:
        line = array((HEADS, 2 * length), jnp.float32, REPLICATED)
        gates = array((rows, HEADS, length), jnp.float32)

    def gradients(ids, seeds, *arrays):
        def total(query, key, value, line, gates):
            bias = None if line is None else bias_tiles(line, fused.kernels.block(size, dtype))
            mask = Mask(*ids, window)
            output = fused.attend(Operands(query, key, value, mask, bias, gates, seeds, 0.1))
            return jnp.square(output.astype(jnp.float32)).sum()

        return jax.grad(total, (0, 1, 2, 3, 4) if gated else (0, 1, 2))(*arrays)

    seeds = array((rows,), dropout.row_seeds(jax.random.split(jax.random.key(0), 1), 1, 1).dtype)
    traced = jax.jit(on_mesh(mesh, gradients)).trace(ids, seeds, *arrays, line, gates)
    request = Request(devices[0].platform, dtype.name, length, HEADS, size, window, gated)
    passes = fused.costs(request)
    stated = ROWS_PER_DEVICE * sum(each.operations for each in passes)
    return traced.lower().compile(), stated_costs(traced.jaxpr.jaxpr), stated


def pairs(text, length):
    """Returns the shapes of arrays in memory that have two axes of the row's length."""
    bodies = re.findall(r"^(?:ENTRY )?%\S+ \(.*?^}", text, re.MULTILINE | re.DOTALL)
    outside = [body for body in bodies if not re.match(r"%(fused|\S*computation)", body)]
    shapes = {
        dims for body in outside for dims in re.findall(r"= \(?\w+\[([\d,]+)\]", body)
    }  # fmt: skip
    return sorted(dims for dims in shapes if dims.split(",").count(str(length)) > 1)


if __name__ == "__main__":
    length = int(sys.argv[2])
    try:
        devices = topologies.parse(sys.argv[1]).devices()
    except ConfigError as error:
        print(json.dumps({"missing": str(error)}))
        sys.exit()
    reports = {}
    for size, dtype, kind in itertools.product(
        map(int, sys.argv[3:]), ("bfloat16", "float32"), KINDS
    ):
        program, costs, stated = compiled(devices, length, size, jnp.dtype(dtype), *KINDS[kind])
        reports[f"{size} {dtype} {kind}"] = {
            "pairs": pairs(program.as_text(), length),
            "operations": sum(products(Program(program.as_text(), costs)).values()),
            "stated": stated,
            "memory": program.memory_analysis().temp_size_in_bytes,
            "kernels": len(re.findall(r"custom_call_target=\"(?:__gpu\$xla\.gpu\.triton|"
                                      r"tpu_custom_call)", program.as_text())),
        }  # fmt: skip
    print(json.dumps(reports))
