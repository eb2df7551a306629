"""Operations of the matrix products of a compiled program, those computed again included."""

import math
import re
from collections.abc import Iterator

from xlj.models.fused_attention import attend
from xlj.planning.hlo import Array, Computation, Instruction, Program


def products(program: Program) -> dict[str, float]:
    """Floating-point operations, a multiply-add as 2, by the type of what is multiplied: "bf16",
    "f32", or "f32 highest", of which all bits are asked for.

    Raises:
      ValueError: on a call of a library whose operations are not known.
    """
    total: dict[str, float] = {}
    for outer, instruction, times in program.executed():
        for kind, count in by_type(program, outer, instruction).items():
            total[kind] = total.get(kind, 0.0) + times * count
    return total


def by_type(program: Program, outer: Computation, instruction: Instruction) -> dict[str, float]:
    """Operations of one run of an instruction of `Program.executed`, by type as of `products`.

    Raises:
      ValueError: as `products`.
    """
    total: dict[str, float] = {}
    for body, found in _inside(program, outer, instruction):
        if count := of_instruction(body, found):
            kind = _floats(body, found)[0].type
            exact = kind == "f32" and "operand_precision={highest" in found.attributes
            kind = "f32 highest" if exact else kind
            total[kind] = total.get(kind, 0.0) + count
    return total


def kernel(instruction: Instruction) -> str:
    """The name of the Pallas kernel that an instruction calls, without a window's size; else
    empty."""
    path = instruction.source.split("/")
    return path[-2].partition("_near")[0] if path[-1] == "pallas_call" and path[1:] else ""


def of_instruction(body: Computation, instruction: Instruction) -> float:
    """Operations of one product; 0 for what is none."""
    op, attributes = instruction.op, instruction.attributes
    if op == "custom-call" and kernel(instruction):
        return _of_kernel(body, instruction)
    if op == "convolution":
        return _of_convolution(body, instruction)
    if op == "dot":
        axes = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", attributes)
    elif op == "custom-call" and re.search(r'custom_call_target="__(cublas|onednn)', attributes):
        axes = re.search(r'"lhs_contracting_dimensions":\[([\d",]*)\]', attributes)
        if axes is None:
            raise ValueError(f"{instruction.name}: a product that says nothing of its axes")
    else:
        return 0.0
    left = body.operands(instruction)[0].results[0].dims
    contracted = [left[int(axis)] for axis in re.findall(r"\d+", axes[1] if axes else "")]
    return 2.0 * math.prod(instruction.results[0].dims) * math.prod(contracted)


def _of_kernel(body: Computation, instruction: Instruction) -> float:
    """Those of our kernels, which no compiler tells; attention's as if no block was skipped but
    those outside a window."""
    name, arrays = kernel(instruction), _floats(body, instruction)
    if made := attend.PRODUCTS.get(name):  # of queries [rows, length, heads, size]
        near = re.search(r"_near(\d+)/pallas_call$", instruction.source)
        keys = min(int(near[1]) if near else arrays[0].dims[1], arrays[0].dims[1])
        return 2.0 * made * math.prod(arrays[0].dims) * keys
    return 0.0


def _floats(body: Computation, instruction: Instruction) -> list[Array]:
    """The arguments of an instruction that are no integers."""
    arrays = (found.results[0] for found in body.operands(instruction))
    return [array for array in arrays if "f" in array.type]


def _inside(
    program: Program, outer: Computation, instruction: Instruction
) -> Iterator[tuple[Computation, Instruction]]:
    if instruction.op != "fusion":
        yield outer, instruction
        return
    for name in instruction.called:
        body = program.computations[name]
        for found in body.instructions:
            yield from _inside(program, body, found)


def _of_convolution(body: Computation, instruction: Instruction) -> float:
    """TPUs multiply so. A batch of products is a convolution whose window slides over holes: only
    what meets a value counts."""
    attributes = instruction.attributes
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", attributes)
    if labels is None:
        raise ValueError(f"{instruction.name}: a convolution that says nothing of its axes")
    left, right = (found.results[0].dims for found in body.operands(instruction)[:2])
    output = instruction.results[0].dims
    pairs = 1
    for axis in filter(str.isdigit, labels[3]):

        def of_window(name: str, default: int = 1, axis: int = int(axis)) -> int:
            found = re.search(rf"window=\{{[^}}]*\b{name}=([\d_x\-]+)", attributes)
            return int(found[1].split("x")[axis].partition("_")[0]) if found else default

        pairs *= _met(
            output[labels[3].index(axis)],
            left[labels[1].index(axis)],
            window=of_window("size"),
            stride=of_window("stride"),
            holes=of_window("lhs_dilate"),
            spread=of_window("rhs_dilate"),
            padding=of_window("pad", 0),
        )
    others = output[labels[3].index("b")] * output[labels[3].index("f")]
    count = 2.0 * pairs * others * right[labels[2].index("i")]
    groups = re.search(r"batch_group_count=(\d+)", attributes)
    return count / int(groups[1]) if groups else count


def _met(
    output: int, size: int, *, window: int, stride: int, holes: int, spread: int, padding: int
) -> int:
    """How many pairs of an output and a place in its window meet a value of the input."""
    return sum(
        0 <= (at := start * stride + place * spread - padding) <= (size - 1) * holes
        and at % holes == 0
        for start in range(output)
        for place in range(window)
    )
