"""Parses the text of a compiled program: its instructions, and how often each instruction runs.

The costs of Pallas kernels are those that they state, by the shapes of a call. A compiled program
does not contain the operations of a kernel. But the traced program has the kernel's
`cost_estimate`, and both programs have the kernel's name and the shapes of its arguments.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import Jaxpr, jaxprs_in_params

from xlj.models.attention.interface import Cost


class Call(NamedTuple):
    """A call of a kernel, as traced and compiled programs have it."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    """Of the arguments."""


def stated_costs(traced: Jaxpr) -> dict[Call, Cost]:
    """Returns the cost that each kernel of a traced program states.

    Raises:
      ValueError: if a kernel states no cost, or states two costs for arguments of equal shapes.
    """
    costs: dict[Call, Cost] = {}
    for equation in _kernels(traced):
        name, stated = equation.params["name"], equation.params["cost_estimate"]
        if stated is None:
            raise ValueError(f"the Pallas kernel {name} states no cost; set its cost_estimate")
        call = Call(name, tuple(argument.aval.shape for argument in equation.invars))
        cost = Cost(stated.flops, stated.bytes_accessed)
        if costs.setdefault(call, cost) != cost:
            raise ValueError(f"two Pallas kernels {name} state different costs; rename one of them")
    return costs


def _kernels(traced: Jaxpr) -> Iterator[Any]:
    """Yields the equations of a program that call a Pallas kernel."""
    for equation in traced.eqns:
        if equation.primitive.name == "pallas_call":
            yield equation
        else:
            for inner in jaxprs_in_params(equation.params):
                yield from _kernels(inner)


_BITS = {"pred": 8, "s4": 4, "u4": 4, "s2": 2, "u2": 2, "bf16": 16, "c64": 64, "c128": 128}
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,]*)\](?:\{([^{}]*)\})?")
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)"
    r"|\b(?:branch_computations|called_computations)=\{([^}]*)\}"
)


class Array(NamedTuple):
    """Type, shape and layout of an array.

    Attributes:
      type: XLA's name of the element type, such as bf16.
      layout: the order of axes in memory, the fastest first; also tiles and memory space, if any.
    """

    type: str
    dims: tuple[int, ...]
    layout: str

    @property
    def bytes(self) -> float:
        """The size in bytes with padded tiles; 0 for an array outside the chip's main memory."""
        return 0.0 if re.search(r"S\([1-9]", self.layout) else self.bytes_anywhere

    @property
    def bytes_anywhere(self) -> float:
        """The size in bytes with padded tiles, in any memory of the chip."""
        dims = list(self.dims)
        order = [int(d) for d in re.findall(r"\d+", self.layout.partition(":")[0])]
        tile = re.search(r"T\(([\d,]+)\)", self.layout)
        if tile and len(order) == len(dims):
            sizes = [int(n) for n in tile[1].split(",")]
            for axis, size in zip(order, reversed(sizes), strict=False):
                dims[axis] = math.ceil(dims[axis] / size) * size
        return math.prod(dims) * _bits(self.type) / 8


class Instruction(NamedTuple):
    """An instruction, one line of the program's text.

    Attributes:
      op: the operation, such as fusion.
      operands: the names of the instructions whose results this instruction takes.
      attributes: the text after the operands, such as groups of devices and metadata.
      arguments: the text between the parentheses: operands, or the value of a constant.
    """

    name: str
    op: str
    results: tuple[Array, ...]
    operands: tuple[str, ...]
    attributes: str
    arguments: str

    @property
    def bytes(self) -> float:
        """The size in bytes of the results in the chip's main memory."""
        return sum(array.bytes for array in self.results)

    @property
    def called(self) -> tuple[str, ...]:
        """The names of the computations that the instruction calls."""
        names: list[str] = []
        for single, several in _CALLED.findall(self.attributes):
            names += [single] if single else [n.strip(" %") for n in several.split(",")]
        return tuple(names)

    def attribute(self, name: str) -> str:
        """Returns the value of an attribute: a computation's name or a number. It is empty if the
        instruction lacks the attribute."""
        match = re.search(rf"\b{name}=%?([\w.\-]+)", self.attributes)
        return match[1] if match else ""

    @property
    def source(self) -> str:
        """The path of the JAX function from which the instruction was traced; empty if unknown."""
        match = re.search(r'op_name="([^"]*)"', self.attributes)
        return match[1] if match else ""


class Computation:
    """A function of a program: instructions in order, which can be found by name."""

    def __init__(self, instructions: Sequence[Instruction]):
        self.instructions = instructions
        self._by_name = {instruction.name: instruction for instruction in instructions}
        self._users: dict[str, list[Instruction]] = {}
        for instruction in instructions:
            for name in dict.fromkeys(instruction.operands):
                self._users.setdefault(name, []).append(instruction)

    def __getitem__(self, name: str) -> Instruction:
        return self._by_name[name]

    def operands(self, instruction: Instruction) -> list[Instruction]:
        """Returns the instructions whose results are the operands of an instruction."""
        return [self._by_name[name] for name in instruction.operands if name in self._by_name]

    def users(self, name: str) -> list[Instruction]:
        """Returns the instructions that take the result of the instruction with this name."""
        return self._users.get(name, [])

    def parameter(self, index: int) -> Instruction | None:
        """Returns the instruction of the parameter with this zero-based index; None if there is no
        such parameter."""
        number = str(index)
        parameters = (i for i in self.instructions if i.op == "parameter")
        return next((i for i in parameters if i.arguments == number), None)


class Program:
    """A compiled program.

    Args:
      text: the output of `jax.stages.Compiled.as_text()`.
      kernels: the costs that the program's kernels state (`stated_costs`).

    Raises:
      ValueError: if the text is not a program.
    """

    def __init__(self, text: str, kernels: Mapping[Call, Cost] = MappingProxyType({})):
        self.computations: dict[str, Computation] = {}
        self._kernels = kernels
        self.entry = ""
        name = ""
        lines: list[Instruction] = []
        for line in re.sub(r"/\*index=\d+\*/", "", text).splitlines():
            if header := _HEADER.match(line):
                name, lines = header[2], []
                self.entry = name if header[1] else self.entry
            elif line.startswith("}") and name:
                self.computations[name], name = Computation(lines), ""
            elif name and (instruction := _parse_instruction(line)):
                lines.append(instruction)
        if not self.entry:
            raise ValueError(
                "this is not the text of a compiled program: it has no ENTRY computation; expected "
                "the output of jax.stages.Compiled.as_text()"
            )

    def executed(
        self, computation: str = "", times: float = 1
    ) -> Iterator[tuple[Computation, Instruction, float]]:
        """Yields (computation, instruction, number of executions) for all instructions that run.

        A fusion is one instruction. Of a conditional, the branch whose instructions have the most
        bytes of results is assumed to run.

        Args:
          computation: the name of the computation to start from; empty for the entry.
          times: the number of executions of this computation.

        Raises:
          ValueError: if a loop has an unknown number of iterations (`trips`).
        """
        body = self.computations[computation or self.entry]
        for each in body.instructions:
            if each.op == "while":
                yield from self.executed(each.attribute("body"), times * self.trips(each))
            elif each.op == "conditional":
                yield from self.executed(max(each.called, key=self._sum_bytes), times)
            elif each.op == "call" or (each.op == "async-start" and each.called):
                for name in each.called:
                    yield from self.executed(name, times)
            else:
                yield body, each, times

    def kernel_cost(self, body: Computation, instruction: Instruction) -> Cost | None:
        """Returns the cost that a Pallas kernel states; None for other instructions.

        Args:
          body: the computation of the instruction.

        Raises:
          ValueError: if the traced program has no such kernel.
        """
        path = instruction.source.split("/")
        if instruction.op != "custom-call" or path[-1] != "pallas_call":
            return None
        shapes = (operand.results[0].dims for operand in body.operands(instruction))
        call = Call(path[-2] if path[1:] else "", tuple(shapes))
        if call not in self._kernels:
            raise ValueError(f"{instruction.name}: the traced program has no kernel {call}")
        return self._kernels[call]

    def trips(self, loop: Instruction) -> int:
        """Returns the number of iterations of a loop.

        The GPU compiler writes this number into the loop's attributes. In programs for TPUs, it is
        the constant with which the loop's condition compares the counter.

        Raises:
          ValueError: if the number is unknown.
        """
        if known := re.search(r'known_trip_count.*?"n":"(\d+)"', loop.attributes):
            return int(known[1])
        bounds, pending = set(), [loop.attribute("condition")]
        while pending:
            for each in self.computations[pending.pop()].instructions:
                pending += each.called
                whole = [a.type in ("s32", "u32") and not a.dims for a in each.results]
                if each.op == "constant" and all(whole) and each.arguments.isdigit():
                    bounds.add(int(each.arguments))
        if len(bounds) != 1:
            raise ValueError(
                f"cannot determine the trip count of the loop {loop.name}: its condition has the "
                f"integer constants {sorted(bounds)}, expected one"
            )
        return bounds.pop()

    def _sum_bytes(self, computation: str) -> float:
        return sum(each.bytes * times for _, each, times in self.executed(computation))


def parse_groups(text: str, devices: int) -> list[list[int]]:
    """Returns the groups of devices of a collective, as indices.

    Three notations are supported: {{0,1},{2,3}}; [2,2]<=[4] with an optional transposition; and
    mesh['a'=2,'b'=2] {'b'} with an optional order of devices. Without groups, all devices are one
    group. Each (source, target) pair of a collective-permute is a group.

    Args:
      text: the attributes of the collective (`Instruction.attributes`).
      devices: the number of devices of the program.

    Raises:
      ValueError: if the notation is unknown.
    """
    if pairs := re.search(r"source_target_pairs=\{(\{[\d,{} ]*\})\}", text):
        return [_parse_numbers(pair) for pair in re.findall(r"\{([\d,]+)\}", pairs[1])]
    named = re.search(r"replica_groups=", text)
    if not named or text.startswith("{}", named.end()):
        return [list(range(devices))]
    rest = text[named.end() :]
    if listed := re.match(r"\{(\{[\d,{} ]*\})\}", rest):
        return [_parse_numbers(group) for group in re.findall(r"\{([\d,]+)\}", listed[1])]
    if iota := re.match(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", rest):
        return _iota(iota[2], iota[3]).reshape(-1, _parse_numbers(iota[1])[-1]).tolist()
    ids = r"(?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))?"
    if mesh := re.match(rf"mesh\[([^\]]*)\]{ids} ?\{{([^}}]*)\}}", rest):
        axes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", mesh[1])}
        chosen = re.findall(r"'(\w+)'", mesh[4])
        if ":" not in mesh[4] and math.prod(axes.values()) == devices:
            order = [n for n, name in enumerate(axes) if name not in chosen]
            order += [list(axes).index(name) for name in chosen]
            size = math.prod(axes[name] for name in chosen)
            ids_of_mesh = _iota(mesh[2] or str(devices), mesh[3]).reshape(tuple(axes.values()))
            return ids_of_mesh.transpose(order).reshape(-1, size).tolist()
    raise ValueError(f"cannot parse the groups of devices, the notation is unknown: {rest[:100]}")


def _parse_numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def _iota(shape: str, order: str | None) -> np.ndarray:
    """Returns an array of `shape` with the numbers 0, 1, ..., transposed to the axis order `order`.

    Both arguments are numbers separated by commas; None leaves the order unchanged.
    """
    sides = _parse_numbers(shape)
    ids = np.arange(math.prod(sides)).reshape(sides)
    return ids.transpose(_parse_numbers(order)) if order else ids


def _bits(kind: str) -> int:
    if kind in _BITS:
        return _BITS[kind]
    # Names such as f32, u8 and f8e4m3fn contain the width. XLA's type `token` has no size.
    width = re.search(r"\d+", kind)
    return int(width[0]) if width else 0


def _parse_arrays(text: str) -> tuple[Array, ...]:
    return tuple(
        Array(kind, tuple(map(int, filter(None, dims.split(",")))), layout)
        for kind, dims, layout in _ARRAY.findall(text)
    )


def _parse_instruction(line: str) -> Instruction | None:
    head = re.match(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$", line)
    if not head:
        return None
    rest = head[2]
    end = _find_closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    shape, rest = rest[:end], rest[end:].lstrip()
    op, _, _ = rest.partition("(")
    start = len(op)
    end = _find_closing(rest, start)
    arguments = rest[start + 1 : end]
    operands = tuple(re.findall(r"%([\w.\-]+)", arguments))
    return Instruction(head[1], op, _parse_arrays(shape), operands, rest[end + 1 :], arguments)


def _find_closing(text: str, start: int) -> int:
    """Returns the index of the parenthesis that matches the parenthesis at `start`."""
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if not depth:
            return index
    return len(text)
