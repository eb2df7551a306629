"""Communication between the devices of a compiled program: bytes, and the links that they use."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax

from xlj.planning.hlo import Array, Computation, Instruction, Program, of_groups

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")


class Collective(NamedTuple):
    """One kind of collective in groups of one size, summed over all its runs.

    Attributes:
      kind: one of `KINDS`.
      devices: the number of devices of a group.
      hosts: the number of hosts of a group; slices of TPUs count as hosts.
      links: the number of links that a device of the group can use at a time within its host or
        slice.
      bytes: the size of the whole arrays: the results of an all-gather, the inputs of a reduction.
      times: how often it runs.
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
        """The bytes that a device sends to other hosts, shared among the devices of its host."""
        return self._sent(self.hosts) / (self.devices // self.hosts)

    def _sent(self, parts: int) -> float:
        """Returns the bytes that each of `parts` sends with the best known algorithm (a ring)."""
        if self.kind == "collective-permute":
            return self.bytes if parts > 1 else 0.0
        once = self.bytes * (parts - 1) / parts
        return 2 * once if self.kind == "all-reduce" else once


def collectives(program: Program, devices: Sequence[jax.Device], ring: int = 0) -> list[Collective]:
    """Returns the collectives of one run of a program, largest first.

    Args:
      devices: the devices of the mesh, in its order.
      ring: as in `chips.Chip`.
    """
    sums: dict[tuple[str, int, int, int], tuple[float, float]] = {}
    for body, instruction, times in program.executed():
        for kind, size, attributes in _exchanges(program, body, instruction):
            groups = of_groups(attributes, len(devices))
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
        yield kind, _whole(kind, body, instruction), instruction.attributes
    if instruction.op != "fusion":
        return
    # On TPUs one fusion may start a collective, others continue it while they multiply, and another
    # ends it. All of them contain the collective and its chain id, so only the first one counts.
    begins = instruction.name.startswith("async-collective-start")
    for name in instruction.called:
        inner = program.computations[name]
        for fused in inner.instructions:
            if begins or "chain_id=" not in fused.attributes:
                for kind, size, attributes in _exchanges(program, inner, fused):
                    # On TPUs a reduce-scatter is a fusion of an all-reduce and a slice.
                    scattered = name.startswith("all-reduce-scatter")
                    yield "reduce-scatter" if scattered else kind, size, attributes


def _whole(kind: str, body: Computation, instruction: Instruction) -> float:
    def size(arrays: Sequence[Array]) -> float:
        return sum(array.bytes_anywhere for array in arrays)

    inputs = [array for operand in body.operands(instruction) for array in operand.results]
    if kind != "all-gather":
        return size(inputs)
    results = instruction.results
    starts = instruction.op.endswith("-start")
    return size(results[len(inputs) : 2 * len(inputs)] if starts else results)


def _hosts(group: Sequence[jax.Device]) -> int:
    tpu = group[0].platform == "tpu"
    return len({getattr(d, "slice_index", 0) if tpu else d.process_index for d in group})


def _links(group: Sequence[jax.Device], devices: Sequence[jax.Device], ring: int) -> int:
    """Returns the links of a device: 1 for GPUs, which share a switch; in a torus, the links along
    the axes of the group."""
    if not ring:
        return 1
    of_group = zip(*(device.coords for device in group), strict=True)
    of_all = zip(*(device.coords for device in devices), strict=True)
    sides = [
        (len(set(side)), len(set(whole))) for side, whole in zip(of_group, of_all, strict=True)
    ]
    closed = [side == whole and whole % ring == 0 for side, whole in sides if side > 1]
    return max(1, sum(2 if each else 1 for each in closed))
