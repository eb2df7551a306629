"""Counts the bytes that the devices of a compiled program exchange, and the links that they use."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax

from xlj.tools.planning.hlo import Array, Computation, Instruction, Program, parse_groups

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")


class Collective(NamedTuple):
    """All collectives of one kind among groups with equal numbers of devices, hosts and links.

    Bytes are summed over all executions in one run of the program.

    Attributes:
      kind: one of `KINDS`.
      devices: the number of devices in a group.
      hosts: the number of hosts in a group. For TPUs, the number of slices.
      links: the number of links of a device, within its host or slice, that the group can use at a
        time.
      bytes: the size of the whole arrays, which are the results of an all-gather or the inputs of
        other collectives.
      times: the number of executions.
    """

    kind: str
    devices: int
    hosts: int
    links: int
    bytes: float
    times: float

    @property
    def fast(self) -> float:
        """The bytes that a device sends within its host or slice."""
        return self._sent(self.devices // self.hosts)

    @property
    def slow(self) -> float:
        """The bytes that a device sends to other hosts, if the devices of a host share the host's
        traffic equally."""
        return self._sent(self.hosts) / (self.devices // self.hosts)

    def _sent(self, participants: int) -> float:
        """Returns the bytes that each participant sends in a ring, the best known algorithm."""
        if self.kind == "collective-permute":
            return self.bytes if participants > 1 else 0.0
        once = self.bytes * (participants - 1) / participants
        return 2 * once if self.kind == "all-reduce" else once


def collectives(program: Program, devices: Sequence[jax.Device], ring: int = 0) -> list[Collective]:
    """Returns the collectives of one run of a program, largest first.

    Args:
      devices: the devices of the mesh, in the order of the mesh.
      ring: a torus wraps around along an axis whose size is a multiple of this number
        (`chips.Chip.ring`); 0 for GPUs.
    """
    sums: dict[tuple[str, int, int, int], tuple[float, float]] = {}
    for body, instruction, times in program.executed():
        for kind, size, attributes in _exchanges(program, body, instruction):
            groups = parse_groups(attributes, len(devices))
            if len(groups[0]) < 2:
                continue
            group = [devices[n] for n in groups[0]]
            key = (kind, len(group), _hosts(group), _links(group, devices, ring))
            before, runs = sums.get(key, (0.0, 0.0))
            sums[key] = (before + times * size, runs + times)
    result = [Collective(*key, *values) for key, values in sums.items()]
    return sorted(result, key=lambda each: -each.bytes)


def _exchanges(
    program: Program, body: Computation, instruction: Instruction
) -> Iterator[tuple[str, float, str]]:
    """Yields (kind, bytes of the whole arrays, attributes) of an instruction's collectives."""
    kind = instruction.op.removesuffix("-start")
    if kind in KINDS:
        yield kind, _whole_bytes(kind, body, instruction), instruction.attributes
    if instruction.op != "fusion":
        return
    # On TPUs one fusion may start a collective, other fusions continue it while they multiply, and
    # a last fusion ends it. All these fusions contain the collective with its chain id, so only the
    # first fusion counts.
    starts_chain = instruction.name.startswith("async-collective-start")
    for name in instruction.called:
        inner = program.computations[name]
        for fused in inner.instructions:
            if starts_chain or "chain_id=" not in fused.attributes:
                for kind, size, attributes in _exchanges(program, inner, fused):
                    # On TPUs a fusion of an all-reduce and a slice is a reduce-scatter.
                    is_scattered = name.startswith("all-reduce-scatter")
                    yield "reduce-scatter" if is_scattered else kind, size, attributes


def _whole_bytes(kind: str, body: Computation, instruction: Instruction) -> float:
    def size(arrays: Sequence[Array]) -> float:
        return sum(array.bytes_anywhere for array in arrays)

    inputs = [array for operand in body.operands(instruction) for array in operand.results]
    if kind != "all-gather":
        return size(inputs)
    results = instruction.results
    starts = instruction.op.endswith("-start")
    return size(results[len(inputs) : 2 * len(inputs)] if starts else results)


def _hosts(group: Sequence[jax.Device]) -> int:
    is_tpu = group[0].platform == "tpu"
    return len({getattr(d, "slice_index", 0) if is_tpu else d.process_index for d in group})


def _links(group: Sequence[jax.Device], devices: Sequence[jax.Device], ring: int) -> int:
    """Returns the number of links of a device that a group can use.

    It is 1 for GPUs, which share a switch. In a torus, it is the number of links along the axes of
    the group.
    """
    if not ring:
        return 1
    group_coordinates = zip(*(device.coords for device in group), strict=True)
    all_coordinates = zip(*(device.coords for device in devices), strict=True)
    sides = [
        (len(set(side)), len(set(whole)))
        for side, whole in zip(group_coordinates, all_coordinates, strict=True)
    ]
    wraps = [side == whole and whole % ring == 0 for side, whole in sides if side > 1]
    return max(1, sum(2 if each else 1 for each in wraps))
