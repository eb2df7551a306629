"""Communication of devices and its links, in compiled programs and in TPUs' fusions."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xlj.planning.collectives import Collective, collectives
from xlj.planning.hlo import Program


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
    "line, kind, whole, fast, slow",
    [
        # Two hosts of four: every device of a host gets a fourth of what the other host has.
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
        # One device of each host.
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
def test_what_a_device_sends_on_fast_and_slow_links(line, kind, whole, fast, slow):
    (found,) = collectives(program(line), gpus(2, 4))
    unit = 6 * 8 * 4
    assert (found.kind, found.bytes, found.times) == (kind, whole * unit, 1)
    assert (found.fast, found.slow) == (fast * unit, slow * unit)


def test_groups_of_one_send_nothing():
    line = "%y = f32[6,8]{1,0} all-reduce(%x), replica_groups=[8,1]<=[8]"
    assert collectives(program(line), gpus(2, 4)) == []


@pytest.mark.parametrize(
    "sides, groups, links",
    [
        ((4, 4), "[1,16]<=[16]", 2),  # two open axes, one way each
        ((16, 16), "[1,256]<=[256]", 4),  # two closed ones
        ((16, 16), "[16,16]<=[256]", 2),
        ((16, 16), "[16,16]<=[16,16]T(1,0)", 2),
        ((16, 16), "[32,8]<=[256]", 1),  # a part of a ring is a line
    ],
)
def test_a_torus_has_two_links_for_a_closed_axis(sides, groups, links):
    line = f"%y = f32[6,8]{{1,0}} all-reduce(%x), replica_groups={groups}"
    (found,) = collectives(program(line), tpus(*sides), ring=16)
    assert found.links == links and found.hosts == 1


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


def test_an_exchange_that_goes_on_beside_others_counts_once():
    of_chain = 'replica_groups={{0,1,2,3}}, frontend_attributes={chain_id="0"}'
    (found,) = collectives(Program(CHAIN.replace("GROUPS", of_chain)), tpus(4, 1))
    assert found == Collective("all-gather", 4, 1, 1, 8 * 8 * 4, 1)


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


def test_a_tpu_writes_a_reduce_scatter_as_a_fusion():
    (found,) = collectives(Program(SCATTER), tpus(4, 1))
    assert found == Collective("reduce-scatter", 4, 1, 1, 8 * 8 * 4, 1)


def test_a_compiled_program_on_a_mesh():
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
    x = jax.ShapeDtypeStruct(
        (16, 32), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("a"))
    )
    w = jax.ShapeDtypeStruct(
        (32, 64), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("b"))
    )

    def step(x, w):
        def each(x, w):
            def body(total, _):
                whole = jax.lax.all_gather(w * total.mean(), "b", axis=0, tiled=True)
                return total + jax.lax.psum((x @ whole).sum(), "a"), None

            return jax.lax.scan(body, jnp.ones(()), None, length=5)[0]

        specs = (PartitionSpec("a"), PartitionSpec("b"))
        return jax.shard_map(
            each, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False
        )(x, w)

    text = jax.jit(step).lower(x, w).compile().as_text()
    found = {each.kind: each for each in collectives(Program(text), list(mesh.devices.flat))}
    gathered, summed = found["all-gather"], found["all-reduce"]
    assert (gathered.devices, gathered.times, gathered.bytes) == (4, 5, 5 * 32 * 64 * 4)
    assert (summed.devices, summed.times, summed.bytes) == (2, 5, 5 * 4)
    assert gathered.fast == 5 * 32 * 64 * 4 * 3 / 4
