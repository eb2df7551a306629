"""Operations of matrix products follow from their shapes, in the notation of each compiler."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.models.attention.interface import Cost
from xlj.tools.planning.hlo import Call, Program
from xlj.tools.planning.products import products


def test_products_in_loops_count_once_per_iteration():
    def f(x, weights):
        x = jnp.einsum("bqd,bkd->bqk", x, x) @ x
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

    text = jax.jit(f).lower(jnp.ones((2, 24, 8)), jnp.ones((7, 8, 8))).compile().as_text()
    expected = 2 * (2 * (2 * 24 * 24 * 8) + 7 * 2 * 24 * 8 * 8)
    assert sum(products(Program(text)).values()) == expected


LINE = """\
HloModule m

ENTRY %main (l: f32[1], r: f32[1]) -> f32[1] {{
  %l = {left} parameter(0)
  %r = {right} parameter(1)
  ROOT %y = {line}
}}
"""


def of_line(left, right, line):
    return products(Program(LINE.format(left=left, right=right, line=line)))


def test_products_of_libraries_and_of_full_precision_are_counted():
    config = '"dot_dimension_numbers":{"lhs_contracting_dimensions":["0"],"rhs_batch":[]}'
    call = f'custom-call(%l, %r), custom_call_target="__cublas$gemm", backend_config={{{config}}}'
    assert of_line(
        "bf16[8,4]{1,0}", "bf16[8,6]{1,0}", f"(f32[4,6]{{1,0}}, s8[99]{{0}}) {call}"
    ) == {"bf16": 2 * 4 * 6 * 8}
    dot = "f32[4,6]{1,0} dot(%l, %r), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    assert of_line("f32[4,8]{1,0}", "f32[8,6]{1,0}", dot) == {"f32": 2 * 4 * 6 * 8}
    full_precision = dot + ", operand_precision={highest,highest}"
    assert of_line("f32[4,8]{1,0}", "f32[8,6]{1,0}", full_precision) == {
        "f32 highest": 2 * 4 * 6 * 8
    }
    with pytest.raises(ValueError, match="cannot count .*, because it has no attribute"):
        incomplete = 'f32[4,6]{1,0} custom-call(%l, %r), custom_call_target="__cublas$lt$matmul"'
        of_line("f32[4,8]{1,0}", "f32[8,6]{1,0}", incomplete)


KERNEL = LINE.format(
    left="bf16[3,128,12,64]{0}",
    right="s32[3,4]{0}",
    line='bf16[3,128,12,64]{0} custom-call(%l, %r), custom_call_target="tpu_custom_call", '
    'metadata={op_name="jit(f)/x/attention_local/pallas_call"}',
)
SHAPES = (3, 128, 12, 64), (3, 4)


def test_kernels_count_the_operations_that_they_state():
    program = Program(KERNEL, {Call("attention_local", SHAPES): Cost(7e9, 5.0)})
    assert products(program) == {"bf16": 7e9}
    assert products(Program(KERNEL, {Call("attention_local", SHAPES): Cost(0, 5.0)})) == {}


@pytest.mark.parametrize("call", [Call("attention", SHAPES), Call("attention_local", SHAPES[:1])])
def test_a_kernel_that_the_traced_program_lacks_is_an_error(call):
    with pytest.raises(ValueError, match="has no kernel .*attention_local"):
        products(Program(KERNEL, {call: Cost(7e9, 5.0)}))


@pytest.mark.parametrize("target, count", [("", 2), ("Dropout", 2), ("Backward", 5)])
def test_attention_of_cudnn_counts_its_products(target, count):
    call = f'custom-call(%l, %r), custom_call_target="__cudnn$fmhaScaleBiasSoftmax{target}"'
    heads = "bf16[3,128,12,64]{0}"
    actual = of_line(heads, heads, f"({heads}, s8[99]{{0}}) {call}, backend_config={{}}")
    assert actual == {"bf16": count * 2 * 3 * 12 * 128 * 128 * 64}


@pytest.mark.parametrize(
    "left, right, output, labels, window, expected",
    [
        ("77,768", "768,64", "77,64", "bf_io->bf", "", 2 * 77 * 64 * 768),
        ("77,768", "64,768", "77,64", "bf_oi->bf", "", 2 * 77 * 64 * 768),
        ("4,512,768", "1,32,768", "4,512,32", "0bf_0oi->0bf", "size=1", 2 * 4 * 512 * 32 * 768),
        # A batch of 4 x 12 products, written as a 4 x 12 window over a dilated input.
        (
            *("4,12,512,64", "4,12,64,128", "4,12,512,128", "01bf_01io->01bf"),
            *("size=4x12 stride=3x11 lhs_dilate=4x12", 2 * 4 * 12 * 512 * 128 * 64),
        ),
    ],
)
def test_products_that_a_tpu_writes_as_convolutions_are_counted(
    left, right, output, labels, window, expected
):
    window_attribute = f", window={{{window}}}" if window else ""
    line = f"f32[{output}]{{0}} convolution(%l, %r){window_attribute}, dim_labels={labels}"
    assert of_line(f"bf16[{left}]{{0}}", f"bf16[{right}]{{0}}", line) == {"bf16": expected}


def test_a_convolution_counts_no_padding_and_no_holes():
    size, window, stride, dilation, window_dilation, padding = 7, 3, 2, 3, 2, 2
    length = (size - 1) * dilation + 1 + 2 * padding
    output = (length - ((window - 1) * window_dilation + 1)) // stride + 1
    line = (
        f"f32[5,{output},6]{{0}} convolution(%l, %r), window={{size={window} stride={stride} "
        f"pad={padding}_{padding} lhs_dilate={dilation} rhs_dilate={window_dilation}}}, "
        "dim_labels=b0f_0io->b0f"
    )
    is_element = np.zeros(length, bool)
    is_element[padding : length - padding : dilation] = True
    covered = sum(
        is_element[start * stride + offset * window_dilation]
        for start, offset in itertools.product(range(output), range(window))
    )
    actual = of_line(f"bf16[5,{size},4]{{0}}", f"bf16[{window},4,6]{{0}}", line)
    assert actual == {"bf16": 2 * 5 * 6 * 4 * covered} and 0 < covered < output * window
