"""Memory traffic equals counts by hand, and an independent count from the program's text."""

import re
from collections import Counter

import jax
import jax.numpy as jnp
import pytest
import references.traffic

from xlj.tools.planning import traffic
from xlj.tools.planning.hlo import Program


def bytes_moved(text):
    return sum(traffic.traffic(Program(text)).values())


def compiled(function, *arguments):
    return jax.jit(function).lower(*arguments).compile().as_text()


def test_an_instruction_reads_its_operands_and_writes_its_result():
    text = compiled(lambda a, b: a @ b, jnp.ones((32, 64)), jnp.ones((64, 16)))
    assert bytes_moved(text) == 4 * (32 * 64 + 64 * 16 + 32 * 16)


FUSIONS = """\
HloModule m

%slices (p0: f32[100,64], p1: s32[]) -> f32[1,64] {
  %p0 = f32[100,64]{1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %view = f32[100,64]{1,0} bitcast(%p0)
  ROOT %slice = f32[1,64]{1,0} dynamic-slice(%view, %p1, %zero), dynamic_slice_sizes={1,64}
}

%updates (q0: f32[100,64], q1: f32[1,64], q2: s32[]) -> f32[100,64] {
  %q0 = f32[100,64]{1,0} parameter(0)
  %q1 = f32[1,64]{1,0} parameter(1)
  %q2 = s32[] parameter(2)
  %none = s32[] constant(0)
  ROOT %update = f32[100,64]{1,0} dynamic-update-slice(%q0, %q1, %q2, %none)
}

%whole (r0: f32[100,64], r1: s32[]) -> f32[1,64] {
  %r0 = f32[100,64]{1,0} parameter(0)
  %r1 = s32[] parameter(1)
  %first = s32[] constant(0)
  %one = f32[1,64]{1,0} dynamic-slice(%r0, %r1, %first), dynamic_slice_sizes={1,64}
  %all = f32[64]{0} reduce(%r0, %first), dimensions={0}, to_apply=%sum
  ROOT %both = f32[1,64]{1,0} add(%one, %all)
}

%nested (s0: f32[100,64], s1: s32[], s2: f32[1,64]) -> f32[1,64] {
  %s0 = f32[100,64]{1,0} parameter(0)
  %s1 = s32[] parameter(1)
  %s2 = f32[1,64]{1,0} parameter(2)
  %part = f32[1,64]{1,0} fusion(%s0, %s1), kind=kLoop, calls=%slices
  ROOT %sum = f32[1,64]{1,0} add(%part, %s2)
}

%nested_updates (t0: f32[100,64], t1: f32[1,64], t2: s32[]) -> f32[100,64] {
  %t0 = f32[100,64]{1,0} parameter(0)
  %t1 = f32[1,64]{1,0} parameter(1)
  %t2 = s32[] parameter(2)
  %twice = f32[1,64]{1,0} add(%t1, %t1)
  ROOT %inner = f32[100,64]{1,0} fusion(%t0, %twice, %t2), kind=kLoop, calls=%updates
}

ENTRY %main (x: f32[100,64], n: s32[], row: f32[1,64]) -> f32[100,64] {
  %x = f32[100,64]{1,0} parameter(0)
  %n = s32[] parameter(1)
  %row = f32[1,64]{1,0} parameter(2)
  BODY
}
"""


@pytest.mark.parametrize(
    "line, bytes",
    [
        ("%a = f32[1,64]{1,0} fusion(%x, %n), kind=kLoop, calls=%slices", 2 * 256 + 4),
        # The update is read and written; nothing is read from the updated array.
        ("%a = f32[100,64]{1,0} fusion(%x, %row, %n), kind=kLoop, calls=%updates", 2 * 256 + 4),
        ("%a = f32[1,64]{1,0} fusion(%x, %n), kind=kLoop, calls=%whole", 25_600 + 4 + 256),
        # A fusion inside a fusion, as in TPU programs.
        ("%a = f32[1,64]{1,0} fusion(%x, %n, %row), kind=kOutput, calls=%nested", 3 * 256 + 4),
        ("%a = f32[100,64]{1,0} fusion(%x, %row, %n), calls=%nested_updates", 2 * 256 + 4),
        ("%a = f32[1,64]{1,0} dynamic-slice(%x, %n, %n), dynamic_slice_sizes={1,64}", 2 * 256),
        ("%a = f32[100,64]{1,0} dynamic-update-slice(%x, %row, %n, %n)", 2 * 256),
        ("%a = f32[100,64]{1,0} copy(%x)", 2 * 25_600),
        ("%a = f32[64,100]{0,1} bitcast(%x)", 0),
        ("%a = (f32[100,64]{1,0}, s32[]) tuple(%x, %n)", 0),
        (
            '%a = (f32[1,64]{1,0}, s8[9]{0}) custom-call(%x), custom_call_target="__cublas$gemm"',
            25_600 + 256,
        ),
        ("%a = (f32[1,64]{1,0}, f32[100,64]{1,0}) custom-call(%x)", 2 * 25_600 + 256),
        # From main memory to on-chip memory: only the read counts.
        ("%a = (f32[1,64]{1,0}, f32[1,64]{1,0:S(1)}, u32[]) copy-start(%row)", 256),
        ("%a = f32[1,64]{1,0:S(1)} copy-done(%row)", 0),
        ("%a = (f32[1,64]{1,0}, f32[8,64]{1,0}) all-gather-start(%row)", 256 + 8 * 256),
        # Operands and results; the collective's own context (u32[64]) does not count.
        ("%a = (f32[1,64]{1,0}, f32[1,64]{1,0}, u32[64]) collective-permute-start(%row)", 512),
        ("%a = f32[1,64]{1,0} all-reduce-start(%row), to_apply=%sum", 2 * 256),
        ("%a = (f32[1,64]{1,0}, f32[1,64]{1,0}) all-reduce-start(%row, %row)", 4 * 256),
    ],
)
def test_only_the_touched_bytes_in_main_memory_count(line, bytes):
    assert bytes_moved(FUSIONS.replace("BODY", f"ROOT {line}")) == bytes


def test_a_stack_of_layers_is_read_once_per_pass():
    layers, width, rows = 6, 48, 512

    def f(x, weights):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

    text = compiled(f, jnp.ones((rows, width)), jnp.ones((layers, width, width)))
    weights, x = 4 * layers * width * width, 4 * rows * width
    # Each layer reads and writes the vectors several times; the weights are sliced out, then read.
    assert 2 * layers * x <= bytes_moved(text) <= 3 * weights + 8 * layers * x


def compiled_programs():
    def attend(q, k, v):
        def loss(q, k, v):
            scores = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k))
            return (jnp.einsum("bqk,bkd->bqd", scores, v) ** 2).sum()

        return jax.grad(loss, (0, 1, 2))(q, k, v)

    def layers(x, weights, ids):
        def layer(x, w):
            return jax.nn.gelu(x @ w[0]) @ w[1] + x, x.sum(1)

        def loss(weights):
            y, sums = jax.lax.scan(layer, x[ids], weights)
            return (y**2).mean() + sums.sum()

        return jax.grad(loss)(weights)

    q = jnp.ones((4, 96, 32))
    weights = (jnp.ones((5, 32, 128)), jnp.ones((5, 128, 32)))
    return {
        "attention": compiled(attend, q, q, q),
        "layers": compiled(layers, jnp.ones((64, 32)), weights, jnp.arange(200) % 64),
    }


@pytest.mark.parametrize("program", ["attention", "layers"])
def test_traffic_of_a_program_equals_the_independent_count(program):
    text = compiled_programs()[program]
    expected = references.traffic.Counter(text).counts
    actual: Counter[str] = Counter()
    parsed = Program(text)
    for body, instruction, times in parsed.executed():
        if size := traffic.of_instruction(parsed, body, instruction):
            actual[f"{instruction.op}:" + re.sub(r"[.\d]+$", "", instruction.name)] += times * size
    expected = {key: size for key, size in expected.items() if size}
    for key in {*expected, *actual}:
        assert actual[key] == pytest.approx(expected.get(key, 0), rel=0.01, abs=64), key
    assert sum(actual.values()) == pytest.approx(sum(expected.values()), rel=0.01)
    assert len(expected) > 5


def test_the_largest_traffic_comes_first_and_names_its_function():
    def f(x):
        with jax.named_scope("large"):
            x = jnp.sin(x) @ x
        with jax.named_scope("small"):
            return jnp.cos(x[0]).sum()

    bytes_by_label = traffic.traffic(Program(compiled(f, jnp.ones((64, 64)))))
    assert list(bytes_by_label.values()) == sorted(bytes_by_label.values(), reverse=True)
    assert "large" in next(iter(bytes_by_label))
