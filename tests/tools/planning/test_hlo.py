"""The text of compiled programs is parsed: loops, groups of devices, tiles, memory spaces.

Also costs that Pallas kernels state are found in traced programs; programs are never run here.
"""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from xlj.models.attention.interface import Cost
from xlj.tools.planning.hlo import Array, Call, Program, parse_groups, stated_costs

TPU = """\
HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[4,8]{1,0})->f32[4,8]{1,0}}

%fused.1 (param_0: s32[]) -> pred[] {
  %param_0 = s32[]{:T(128)} parameter(0)
  %constant.7 = s32[]{:T(128)} constant(7)
  ROOT %compare.1 = pred[]{:T(512)} compare(%param_0, %constant.7), direction=LT
}

%condition.2 (state.1: (s32[], f32[4,8])) -> pred[] {
  %state.1 = (s32[]{:T(128)}, f32[4,8]{1,0:T(8,128)}) parameter(0)
  %get.1 = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  ROOT %less.1 = pred[]{:T(512)} fusion(%get.1), kind=kLoop, calls=%fused.1
}

%body.3 (state.2: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %state.2 = (s32[]{:T(128)}, f32[4,8]{1,0:T(8,128)}) parameter(0)
  %get.2 = s32[]{:T(128)} get-tuple-element(%state.2), index=0
  %get.3 = f32[4,8]{1,0:T(8,128)} get-tuple-element(%state.2), index=1
  %add.1 = f32[4,8]{1,0:T(8,128)} add(%get.3, %get.3), metadata={op_name="jit(f)/while/body/add"}
  ROOT %tuple.1 = (s32[]{:T(128)}, /*index=1*/f32[4,8]{1,0:T(8,128)}) tuple(%get.2, %add.1)
}

ENTRY %main.4 (x.1: f32[4,8]) -> f32[4,8] {
  %x.1 = f32[4,8]{1,0:T(8,128)} parameter(0), metadata={op_name="x"}
  %constant.8 = s32[]{:T(128)} constant(0)
  %tuple.2 = (s32[]{:T(128)}, f32[4,8]{1,0:T(8,128)}) tuple(%constant.8, %x.1)
  %while.1 = (s32[], f32[4,8]{1,0}) while(%tuple.2), condition=%condition.2, body=%body.3
  ROOT %get.4 = f32[4,8]{1,0:T(8,128)} get-tuple-element(%while.1), index=1
}
"""


def execution_counts(program):
    return {instruction.name: times for _, instruction, times in program.executed()}


def test_the_trip_count_of_a_loop_follows_from_its_condition():
    counts = execution_counts(Program(TPU))
    assert counts["add.1"] == 7 and counts["tuple.2"] == 1 and "while.1" not in counts


def test_a_known_trip_count_is_used():
    program = TPU.replace(
        "body=%body.3", 'body=%body.3, backend_config={"known_trip_count":{"n":"12"}}'
    )
    assert execution_counts(Program(program))["add.1"] == 12


def test_an_unknown_trip_count_is_an_error():
    text = TPU.replace(
        "  ROOT %compare.1", "  %constant.9 = s32[]{:T(128)} constant(9)\n  ROOT %compare.1"
    )
    with pytest.raises(ValueError, match=r"while.1: .* the integer constants \[7, 9\]"):
        execution_counts(Program(text))


def test_text_that_is_no_compiled_program_is_an_error():
    with pytest.raises(ValueError, match="not the text of a compiled program"):
        Program("module @jit_f {}")


def test_all_parts_of_instructions_are_parsed():
    program = Program(TPU)
    body = program.computations["body.3"]
    add, state = body["add.1"], body["state.2"]
    assert (add.op, add.operands, add.source) == (
        "add",
        ("get.3", "get.3"),
        "jit(f)/while/body/add",
    )
    assert [array.dims for array in state.results] == [(), (4, 8)]
    assert body.parameter(0) is state and body.parameter(1) is None
    assert [user.name for user in body.users("get.3")] == ["add.1"]
    assert program.computations["condition.2"]["less.1"].called == ("fused.1",)


def test_trip_counts_of_nested_scans_in_a_compiled_program_multiply():
    def f(x):
        def outer(x, _):
            return jax.lax.scan(lambda x, _: (jnp.sin(x @ x), None), x, length=5)[0], None

        return jax.lax.scan(outer, x, length=3)[0]

    text = jax.jit(f).lower(jnp.ones((16, 16))).compile().as_text()
    counts = [times for _, i, times in Program(text).executed() if "sin" in i.source]
    assert counts and all(times == 15 for times in counts)


def test_the_branch_that_moves_most_bytes_counts():
    def f(which, x):
        return jax.lax.cond(which, lambda x: jnp.sin(jnp.tile(x, (9, 1))).sum(0), lambda x: x, x)

    text = jax.jit(f).lower(True, jnp.ones(64)).compile().as_text()
    assert " conditional(" in text
    assert any(
        "branch_1_fun" in instruction.source for _, instruction, _ in Program(text).executed()
    )


@pytest.mark.parametrize(
    "array, size",
    [
        (Array("f32", (4, 8), "1,0"), 4 * 8 * 4),
        (Array("bf16", (), ""), 2),
        (Array("pred", (3,), "0"), 3),
        (Array("s4", (10,), "0"), 5),
        (Array("f8e4m3fn", (10,), "0"), 10),
        (Array("token", (), ""), 0),
        (Array("f32", (4, 100), "1,0:T(8,128)"), 8 * 128 * 4),
        (Array("f32", (4, 100), "0,1:T(8,128)"), 128 * 104 * 4),  # the first axis varies fastest
        (Array("bf16", (3, 4, 100), "2,1,0:T(8,128)(2,1)"), 3 * 8 * 128 * 2),
        (Array("f32", (768,), "0:T(1024)"), 1024 * 4),
        (Array("f32", (4, 128), "1,0:T(8,128)S(1)"), 0),
    ],
)
def test_bytes_are_those_in_main_memory_including_padding_of_tiles(array, size):
    assert array.bytes == size


@pytest.mark.parametrize(
    "text, groups",
    [
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("replica_groups=[4,2]<=[8], x=1", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("replica_groups=[2,4]<=[4,2]T(1,0)", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("replica_groups=[2,4]<=[2,2,2]T(1,0,2)", [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("replica_groups=mesh['a'=4,'b'=2] {'b'}", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("replica_groups=mesh['a'=4,'b'=2] {'a'}", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("replica_groups=mesh['a'=4,'b'=2] {'a','b'}", [[*range(8)]]),
        (
            "replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}, y=2",
            [[0, 1, 2, 3], [4, 5, 6, 7]],
        ),
        ("source_target_pairs={{0,1},{1,0}}", [[0, 1], [1, 0]]),
        ("replica_groups={}, channel_id=1", [[*range(8)]]),
        ("channel_id=1", [[*range(8)]]),
    ],
)
def test_groups_of_devices_are_parsed(text, groups):
    assert parse_groups(text, 8) == groups


def test_groups_in_an_unknown_notation_are_an_error():
    with pytest.raises(ValueError, match="the notation is unknown: mesh"):
        parse_groups("replica_groups=mesh['a'=8] {'a':(2)4}", 8)


def kernel(x, flops, size=8, name="double"):
    cost = flops and pl.CostEstimate(flops=flops, transcendentals=0, bytes_accessed=size)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        lambda x_ref, y_ref: None, out_shape=shape, cost_estimate=cost, interpret=True, name=name
    )(x)


def costs_of(function):
    return stated_costs(jax.make_jaxpr(function)(jnp.zeros((3, 4))).jaxpr)


def test_kernels_in_loops_branches_and_recomputation_are_found():
    """The same call may occur several times."""

    def program(x):
        x = jax.lax.fori_loop(0, 3, lambda _, x: kernel(x, 5), x)
        x = jax.lax.cond(x.sum() > 0, lambda x: kernel(x, 6, name="other"), jnp.sin, x)
        x = jax.jit(jax.checkpoint(lambda x: kernel(x, 5)))(x)
        return kernel(x[:2], 4)

    assert costs_of(program) == {
        Call("double", ((3, 4),)): Cost(5, 8),
        Call("other", ((3, 4),)): Cost(6, 8),
        Call("double", ((2, 4),)): Cost(4, 8),
    }


def test_a_kernel_without_a_cost_is_an_error():
    with pytest.raises(ValueError, match="double states no cost"):
        costs_of(lambda x: kernel(x, None))


def test_two_costs_for_one_call_are_an_error():
    with pytest.raises(ValueError, match="two Pallas kernels double"):
        costs_of(lambda x: kernel(kernel(x, 5), 5, size=9))
