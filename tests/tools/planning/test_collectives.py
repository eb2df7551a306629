"""The bytes that devices exchange, and their links, follow from the text of compiled programs."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xlj.tools.planning.collectives import Collective, collectives
from xlj.tools.planning.hlo import Program


def gpus(hosts, per_host):
    return [
        types.SimpleNamespace(platform="gpu", process_index=n // per_host)
        for n in range(hosts * per_host)
    ]


def tpus(*sides):
    return [
        types.SimpleNamespace(platform="tpu", process_index=0, coords=at, slice_index=0)
        for at in np.ndindex(*sides)
    ]


def program(line, operand="f32[6,8]{1,0}"):
    body = f"  %x = {operand} parameter(0)\n  ROOT {line}\n"
    return Program(f"ENTRY %main (x: f32[6,8]) -> f32[1] {{\n{body}}}\n")


@pytest.mark.parametrize(
    "line, kind, total, fast, slow",
    [
        # Two hosts of four devices: each device gets a fourth of the other host's data.
        ("%y = f32[48,8]{1,0} all-gather(%x), replica_groups={}", "all-gather", 8, 6, 1),
        (
            "%y = (f32[6,8]{1,0}, f32[48,8]{1,0}) all-gather-start(%x), replica_groups=[1,8]<=[8]",
            *("all-gather", 8, 6, 1),
        ),
        ("%y = f32[6,8]{1,0} all-reduce(%x), replica_groups={}", "all-reduce", 1, 1.5, 0.25),
        (
            "%y = f32[6,1]{1,0} reduce-scatter(%x), replica_groups={{0,1,2,3},{4,5,6,7}}",
            *("reduce-scatter", 1, 0.75, 0),
        ),
        ("%y = f32[6,8]{1,0} all-to-all(%x), replica_groups=[2,4]<=[8]", "all-to-all", 1, 0.75, 0),
        # Groups of one device per host.
        (
            "%y = f32[6,8]{1,0} all-reduce(%x), replica_groups=[4,2]<=[2,4]T(1,0)",
            *("all-reduce", 1, 0, 1),
        ),
        (
            "%y = f32[6,8]{1,0} collective-permute(%x), source_target_pairs={{0,1},{1,0}}",
            *("collective-permute", 1, 1, 0),
        ),
    ],
)
def test_bytes_that_a_device_sends_on_fast_and_slow_links(line, kind, total, fast, slow):
    (collective,) = collectives(program(line), gpus(2, 4))
    unit = 6 * 8 * 4
    assert (collective.kind, collective.bytes, collective.times) == (kind, total * unit, 1)
    assert (collective.fast, collective.slow) == (fast * unit, slow * unit)


def test_groups_of_one_device_send_nothing():
    line = "%y = f32[6,8]{1,0} all-reduce(%x), replica_groups=[8,1]<=[8]"
    assert collectives(program(line), gpus(2, 4)) == []


@pytest.mark.parametrize(
    "sides, groups, links",
    [
        ((4, 4), "[1,16]<=[16]", 2),  # two open axes, one link each
        ((16, 16), "[1,256]<=[256]", 4),  # two closed axes, two links each
        ((16, 16), "[16,16]<=[256]", 2),
        ((16, 16), "[16,16]<=[16,16]T(1,0)", 2),
        ((16, 16), "[32,8]<=[256]", 1),  # a part of a ring is a line
    ],
)
def test_a_closed_axis_of_a_torus_has_two_links(sides, groups, links):
    line = f"%y = f32[6,8]{{1,0}} all-reduce(%x), replica_groups={groups}"
    (collective,) = collectives(program(line), tpus(*sides), ring=16)
    assert collective.links == links and collective.hosts == 1


CHAIN = """\
HloModule m

%begin (a: f32[2,8]) -> (f32[2,8], f32[8,8]) {
  %a = f32[2,8]{1,0} parameter(0)
  %all-gather.1 = f32[8,8]{1,0} all-gather(%a), GROUPS
  ROOT %c = (f32[2,8]{1,0}, f32[8,8]{1,0}) custom-call(%a, %all-gather.1), custom_call_target="x"
}

%step (b: f32[2,8]) -> f32[8,8] {
  %b = f32[2,8]{1,0} parameter(0)
  ROOT %all-gather.2 = f32[8,8]{1,0} all-gather(%b), GROUPS
}

ENTRY %main (x: f32[2,8]) -> f32[8,8] {
  %x = f32[2,8]{1,0} parameter(0)
  %async-collective-start.3 = (f32[2,8]{1,0}, f32[8,8]{1,0}) fusion(%x), kind=kCustom, calls=%begin
  %fusion.9 = f32[8,8]{1,0} fusion(%x), kind=kOutput, calls=%step
  ROOT %async-collective-done.3 = f32[8,8]{1,0} fusion(%x), kind=kCustom, calls=%step
}
"""


def test_a_collective_that_overlaps_with_other_work_counts_once():
    groups_of_chain = 'replica_groups={{0,1,2,3}}, frontend_attributes={chain_id="0"}'
    (collective,) = collectives(Program(CHAIN.replace("GROUPS", groups_of_chain)), tpus(4, 1))
    assert collective == Collective("all-gather", 4, 1, 1, 8 * 8 * 4, 1)


SCATTER = """\
HloModule m

%all-reduce-scatter.1 (a: f32[8,8]) -> f32[2,8] {
  %a = f32[8,8]{1,0} parameter(0)
  %all-reduce.1 = f32[8,8]{1,0} all-reduce(%a), replica_groups={{0,1,2,3}}, to_apply=%sum
  %n = u32[] constant(2)
  ROOT %s = f32[2,8]{1,0} dynamic-slice(%all-reduce.1, %n, %n), dynamic_slice_sizes={2,8}
}

ENTRY %main (x: f32[8,8]) -> f32[2,8] {
  %x = f32[8,8]{1,0} parameter(0)
  ROOT %fusion.1 = f32[2,8]{1,0} fusion(%x), kind=kCustom, calls=%all-reduce-scatter.1
}
"""


def test_a_reduce_scatter_that_a_tpu_writes_as_a_fusion_is_counted():
    (collective,) = collectives(Program(SCATTER), tpus(4, 1))
    assert collective == Collective("reduce-scatter", 4, 1, 1, 8 * 8 * 4, 1)


def test_collectives_of_a_program_that_is_compiled_for_a_mesh():
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
    x = jax.ShapeDtypeStruct(
        (16, 32), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("a"))
    )
    w = jax.ShapeDtypeStruct(
        (32, 64), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("b"))
    )

    def step(x, w):
        def per_device(x, w):
            def body(total, _):
                whole = jax.lax.all_gather(w * total.mean(), "b", axis=0, tiled=True)
                return total + jax.lax.psum((x @ whole).sum(), "a"), None

            return jax.lax.scan(body, jnp.ones(()), None, length=5)[0]

        specs = (PartitionSpec("a"), PartitionSpec("b"))
        return jax.shard_map(
            per_device, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False
        )(x, w)

    text = jax.jit(step).lower(x, w).compile().as_text()
    by_kind = {each.kind: each for each in collectives(Program(text), list(mesh.devices.flat))}
    gather, reduce = by_kind["all-gather"], by_kind["all-reduce"]
    assert (gather.devices, gather.times, gather.bytes) == (4, 5, 5 * 32 * 64 * 4)
    assert (reduce.devices, reduce.times, reduce.bytes) == (2, 5, 5 * 4)
    assert gather.fast == 5 * 32 * 64 * 4 * 3 / 4
