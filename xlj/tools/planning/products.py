"""Counts the operations of a compiled program's matrix products, including recomputation."""

import math
import re
from collections.abc import Iterator

from xlj.models.attention import cudnn
from xlj.models.attention.interface import Request
from xlj.tools.planning.hlo import Array, Computation, Instruction, Program


def products(program: Program) -> dict[str, float]:
    """Returns the floating-point operations of a program's matrix products, by type of the factors.

    A multiply-add counts as 2 operations. Types are "bf16", "f32" (default precision), "f32
    highest" (full float32 precision), and so on.

    Raises:
      ValueError: on a library call whose operations are unknown.
    """
    total: dict[str, float] = {}
    for outer, instruction, times in program.executed():
        for kind, count in by_type(program, outer, instruction).items():
            total[kind] = total.get(kind, 0.0) + times * count
    return total


def by_type(program: Program, outer: Computation, instruction: Instruction) -> dict[str, float]:
    """Returns the operations of one execution of an instruction, by type as in `products`.

    Args:
      outer, instruction: from `Program.executed`.

    Raises:
      ValueError: on a library call whose operations are unknown.
    """
    total: dict[str, float] = {}
    for body, inner in _inner_instructions(program, outer, instruction):
        cost = program.kernel_cost(body, inner)
        if count := of_instruction(body, inner) if cost is None else cost.operations:
            kind = _float_operands(body, inner)[0].type
            is_full_precision = kind == "f32" and "operand_precision={highest" in inner.attributes
            kind = "f32 highest" if is_full_precision else kind
            total[kind] = total.get(kind, 0.0) + count
    return total


def is_cudnn_attention(instruction: Instruction) -> bool:
    """Returns whether an instruction is a forward or backward pass of cuDNN's attention."""
    return 'custom_call_target="__cudnn$fmha' in instruction.attributes


def of_instruction(body: Computation, instruction: Instruction) -> float:
    """Returns the operations of one matrix product; 0 for other instructions.

    Raises:
      ValueError: if the operations of the product are unknown.
    """
    op, attributes = instruction.op, instruction.attributes
    if is_cudnn_attention(instruction):
        rows, length, heads, size = body.operands(instruction)[0].results[0].dims
        costs = cudnn.CuDnn().costs(Request("gpu", "bfloat16", length, heads, size))
        is_backward = re.search(r'custom_call_target="\S*Backward"', attributes) is not None
        return rows * costs[is_backward].operations
    if op == "convolution":
        return _convolution_operations(body, instruction)
    if op == "dot":
        axes = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", attributes)
    elif op == "custom-call" and re.search(r'custom_call_target="__(cublas|onednn)', attributes):
        axes = re.search(r'"lhs_contracting_dimensions":\[([\d",]*)\]', attributes)
        if axes is None:
            raise ValueError(
                f"{instruction.name}: cannot count the operations of this product, "
                "because it has no attribute lhs_contracting_dimensions"
            )
    else:
        return 0.0
    left = body.operands(instruction)[0].results[0].dims
    contracted = [left[int(axis)] for axis in re.findall(r"\d+", axes[1] if axes else "")]
    return 2.0 * math.prod(instruction.results[0].dims) * math.prod(contracted)


def _float_operands(body: Computation, instruction: Instruction) -> list[Array]:
    """Returns the floating-point arguments of an instruction."""
    arrays = (operand.results[0] for operand in body.operands(instruction))
    return [array for array in arrays if "f" in array.type]


def _inner_instructions(
    program: Program, outer: Computation, instruction: Instruction
) -> Iterator[tuple[Computation, Instruction]]:
    if instruction.op != "fusion":
        yield outer, instruction
        return
    for name in instruction.called:
        body = program.computations[name]
        for inner in body.instructions:
            yield from _inner_instructions(program, body, inner)


def _convolution_operations(body: Computation, instruction: Instruction) -> float:
    """Returns the operations of a convolution, the form that matrix products have on TPUs.

    A batch of products becomes a convolution with a dilated input. Dilation inserts zeros (holes)
    between the values of the input. Multiplications with a hole do not count.
    """
    attributes = instruction.attributes
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", attributes)
    if labels is None:
        raise ValueError(
            f"{instruction.name}: cannot count the operations of this convolution, "
            "because it has no attribute dim_labels"
        )
    left, right = (operand.results[0].dims for operand in body.operands(instruction)[:2])
    output = instruction.results[0].dims
    pairs = 1
    for axis in filter(str.isdigit, labels[3]):

        def of_window(name: str, default: int = 1, axis: int = int(axis)) -> int:
            match = re.search(rf"window=\{{[^}}]*\b{name}=([\d_x\-]+)", attributes)
            return int(match[1].split("x")[axis].partition("_")[0]) if match else default

        pairs *= _count_pairs(
            output[labels[3].index(axis)],
            left[labels[1].index(axis)],
            window=of_window("size"),
            stride=of_window("stride"),
            holes=of_window("lhs_dilate"),
            spread=of_window("rhs_dilate"),
            padding=of_window("pad", 0),
        )
    outer_size = output[labels[3].index("b")] * output[labels[3].index("f")]
    count = 2.0 * pairs * outer_size * right[labels[2].index("i")]
    groups = re.search(r"batch_group_count=(\d+)", attributes)
    return count / int(groups[1]) if groups else count


def _count_pairs(
    output: int, size: int, *, window: int, stride: int, holes: int, spread: int, padding: int
) -> int:
    """Counts the pairs (output, position in the output's window) that read a value of the input,
    not a hole or padding.

    Args:
      output, size: the sizes of the output and the input along one axis.
      window: the number of positions in a window.
      stride: the distance between adjacent windows.
      holes: the dilation of the input; 1 for none.
      spread: the dilation of the window; 1 for none.
      padding: the padding before the input.
    """
    return sum(
        0 <= (at := start * stride + place * spread - padding) <= (size - 1) * holes
        and at % holes == 0
        for start in range(output)
        for place in range(window)
    )
