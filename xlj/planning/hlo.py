"""The text of a compiled program: its instructions, and how often each of them runs."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

_BITS = {"pred": 8, "s4": 4, "u4": 4, "s2": 2, "u2": 2, "bf16": 16, "c64": 64, "c128": 128}
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,]*)\](?:\{([^{}]*)\})?")
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)"
    r"|\b(?:branch_computations|called_computations)=\{([^}]*)\}"
)


class Array(NamedTuple):
    """An array of a shape."""

    type: str
    dims: tuple[int, ...]
    layout: str
    """Of its dimensions from the fastest to the slowest, its tiles and memory space, if any."""

    @property
    def bytes(self) -> float:
        """In the chip's main memory, its tiles padded; 0 for what lies nearer to the cores."""
        return 0.0 if re.search(r"S\([1-9]", self.layout) else self.bytes_anywhere

    @property
    def bytes_anywhere(self) -> float:
        """In whichever memory, its tiles padded."""
        dims = list(self.dims)
        order = [int(d) for d in re.findall(r"\d+", self.layout.partition(":")[0])]
        tile = re.search(r"T\(([\d,]+)\)", self.layout)
        if tile and len(order) == len(dims):
            sizes = [int(n) for n in tile[1].split(",")]
            for axis, size in zip(order, reversed(sizes), strict=False):
                dims[axis] = math.ceil(dims[axis] / size) * size
        return math.prod(dims) * _bits(self.type) / 8


class Instruction(NamedTuple):
    """A line of a program."""

    name: str
    op: str
    results: tuple[Array, ...]
    operands: tuple[str, ...]
    attributes: str
    """All that follows its operands: layouts, groups, metadata."""
    arguments: str
    """What stands between the parentheses: operands, or the value of a constant."""

    @property
    def bytes(self) -> float:
        """Of its results."""
        return sum(array.bytes for array in self.results)

    @property
    def called(self) -> tuple[str, ...]:
        """The computations that it runs."""
        names: list[str] = []
        for one, several in _CALLED.findall(self.attributes):
            names += [one] if one else [n.strip(" %") for n in several.split(",")]
        return tuple(names)

    def attribute(self, name: str) -> str:
        """The computation, or number, that an attribute names; empty without it."""
        found = re.search(rf"\b{name}=%?([\w.\-]+)", self.attributes)
        return found[1] if found else ""

    @property
    def source(self) -> str:
        """The path of the function that it comes from, as JAX traced it."""
        found = re.search(r'op_name="([^"]*)"', self.attributes)
        return found[1] if found else ""


class Computation:
    """A function of a program."""

    def __init__(self, instructions: Sequence[Instruction]):
        self.instructions = instructions
        self._by_name = {found.name: found for found in instructions}
        self._users: dict[str, list[Instruction]] = {}
        for found in instructions:
            for name in dict.fromkeys(found.operands):
                self._users.setdefault(name, []).append(found)

    def __getitem__(self, name: str) -> Instruction:
        return self._by_name[name]

    def operands(self, instruction: Instruction) -> list[Instruction]:
        """The instructions whose results one takes."""
        return [self._by_name[name] for name in instruction.operands if name in self._by_name]

    def users(self, name: str) -> list[Instruction]:
        """The instructions that take the result of one."""
        return self._users.get(name, [])

    def parameter(self, index: int) -> Instruction | None:
        """The instruction that stands for an argument."""
        found = (i for i in self.instructions if i.op == "parameter" and i.arguments == str(index))
        return next(found, None)


class Program:
    """A compiled program.

    Args:
      text: of `jax.stages.Compiled.as_text()`.

    Raises:
      ValueError: if the text is none of a program.
    """

    def __init__(self, text: str):
        self.computations: dict[str, Computation] = {}
        self.entry = ""
        name = ""
        lines: list[Instruction] = []
        for line in re.sub(r"/\*index=\d+\*/", "", text).splitlines():
            if header := _HEADER.match(line):
                name, lines = header[2], []
                self.entry = name if header[1] else self.entry
            elif line.startswith("}") and name:
                self.computations[name], name = Computation(lines), ""
            elif name and (found := _instruction(line)):
                lines.append(found)
        if not self.entry:
            raise ValueError("this is not the text of a compiled program")

    def executed(
        self, computation: str = "", times: float = 1
    ) -> Iterator[tuple[Computation, Instruction, float]]:
        """Yields (its computation, instruction, how often it runs) for those that run on their own;
        a fusion is one. Of a conditional's branches the one that moves most runs."""
        body = self.computations[computation or self.entry]
        for found in body.instructions:
            if found.op == "while":
                yield from self.executed(found.attribute("body"), times * self.trips(found))
            elif found.op == "conditional":
                yield from self.executed(max(found.called, key=self._moved), times)
            elif found.op == "call" or (found.op == "async-start" and found.called):
                for name in found.called:
                    yield from self.executed(name, times)
            else:
                yield body, found, times

    def trips(self, loop: Instruction) -> int:
        """How often a loop's body runs: as the compiler says, or, where it does not (TPUs), the
        bound that its condition compares the counter with.

        Raises:
          ValueError: if neither tells.
        """
        if known := re.search(r'known_trip_count.*?"n":"(\d+)"', loop.attributes):
            return int(known[1])
        bounds, left = set(), [loop.attribute("condition")]
        while left:
            for found in self.computations[left.pop()].instructions:
                left += found.called
                whole = [a.type in ("s32", "u32") and not a.dims for a in found.results]
                if found.op == "constant" and all(whole) and found.arguments.isdigit():
                    bounds.add(int(found.arguments))
        if len(bounds) != 1:
            raise ValueError(f"the trips of the loop {loop.name} are not known: {sorted(bounds)}")
        return bounds.pop()

    def _moved(self, computation: str) -> float:
        return sum(found.bytes * times for _, found, times in self.executed(computation))


def of_groups(text: str, devices: int) -> list[list[int]]:
    """The groups of devices of a collective's attributes: one of all devices if none are named.

    Three ways of writing are read: {{0,1},{2,3}}; [2,2]<=[4], with a transposition; and
    mesh['a'=2,'b'=2] {'b'}, with the order of its devices.

    Raises:
      ValueError: on another.
    """
    if pairs := re.search(r"source_target_pairs=\{(\{[\d,{} ]*\})\}", text):
        return [_numbers(pair) for pair in re.findall(r"\{([\d,]+)\}", pairs[1])]
    named = re.search(r"replica_groups=", text)
    if not named or text.startswith("{}", named.end()):
        return [list(range(devices))]
    rest = text[named.end() :]
    if listed := re.match(r"\{(\{[\d,{} ]*\})\}", rest):
        return [_numbers(group) for group in re.findall(r"\{([\d,]+)\}", listed[1])]
    if made := re.match(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", rest):
        return _numbered(made[2], made[3]).reshape(-1, _numbers(made[1])[-1]).tolist()
    ids = r"(?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))?"
    if mesh := re.match(rf"mesh\[([^\]]*)\]{ids} ?\{{([^}}]*)\}}", rest):
        axes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", mesh[1])}
        chosen = re.findall(r"'(\w+)'", mesh[4])
        if ":" not in mesh[4] and math.prod(axes.values()) == devices:
            order = [n for n, name in enumerate(axes) if name not in chosen]
            order += [list(axes).index(name) for name in chosen]
            size = math.prod(axes[name] for name in chosen)
            there = _numbered(mesh[2] or str(devices), mesh[3]).reshape(tuple(axes.values()))
            return there.transpose(order).reshape(-1, size).tolist()
    raise ValueError(f"groups of devices that are written in an unknown way: {rest[:100]}")


def _numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def _numbered(shape: str, order: str | None) -> np.ndarray:
    """The numbers 0, 1, ... in an array of `shape`, whose axes are then put in `order`, if any."""
    sides = _numbers(shape)
    ids = np.arange(math.prod(sides)).reshape(sides)
    return ids.transpose(_numbers(order)) if order else ids


def _bits(kind: str) -> int:
    if kind in _BITS:
        return _BITS[kind]
    width = re.search(r"\d+", kind)  # f32, u8, f8e4m3fn; a token has none
    return int(width[0]) if width else 0


def _arrays(text: str) -> tuple[Array, ...]:
    return tuple(
        Array(kind, tuple(map(int, filter(None, dims.split(",")))), layout)
        for kind, dims, layout in _ARRAY.findall(text)
    )


def _instruction(line: str) -> Instruction | None:
    head = re.match(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$", line)
    if not head:
        return None
    rest = head[2]
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    shape, rest = rest[:end], rest[end:].lstrip()
    op, _, _ = rest.partition("(")
    start = len(op)
    end = _closing(rest, start)
    arguments = rest[start + 1 : end]
    operands = tuple(re.findall(r"%([\w.\-]+)", arguments))
    return Instruction(head[1], op, _arrays(shape), operands, rest[end + 1 :], arguments)


def _closing(text: str, start: int) -> int:
    """Where the parenthesis that opens at `start` closes."""
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if not depth:
            return index
    return len(text)
