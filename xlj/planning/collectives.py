"""What the devices of a compiled program send each other, and over which links."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax

from xlj.planning.hlo import Array, Computation, Instruction, Program, of_groups

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")


class Collective(NamedTuple):
    """One kind of exchange within groups of one size, all runs of it together."""

    kind: str
    devices: int
    """Of a group."""
    hosts: int
    """That a group lies on; slices of TPUs count as hosts here."""
    links: int
    """That a device of the group can send on at a time within its host or slice."""
    bytes: float
    """Of the whole arrays: what an all-gather gives, what a reduction takes."""
    times: float
    """How often it runs."""

    @property
    def fast(self) -> float:
        """Bytes that a device sends within its host or slice."""
        return self._sent(self.devices // self.hosts)

    @property
    def slow(self) -> float:
        """Bytes that a device sends to other hosts: those of a host share it out."""
        return self._sent(self.hosts) / (self.devices // self.hosts)

    def _sent(self, parts: int) -> float:
        """What each of `parts` sends if the best known algorithm (a ring) is used."""
        if self.kind == "collective-permute":
            return self.bytes if parts > 1 else 0.0
        once = self.bytes * (parts - 1) / parts
        return 2 * once if self.kind == "all-reduce" else once


def collectives(program: Program, devices: Sequence[jax.Device], ring: int = 0) -> list[Collective]:
    """The exchanges of one run, those that send most first.

    Args:
      devices: of the mesh, in its order.
      ring: as of `chips.Chip`.
    """
    found: dict[tuple[str, int, int, int], tuple[float, float]] = {}
    for body, instruction, times in program.executed():
        for kind, size, attributes in _exchanges(program, body, instruction):
            groups = of_groups(attributes, len(devices))
            if len(groups[0]) < 2:
                continue
            group = [devices[n] for n in groups[0]]
            key = (kind, len(group), _hosts(group), _links(group, devices, ring))
            before, runs = found.get(key, (0.0, 0.0))
            found[key] = (before + times * size, runs + times)
    made = [Collective(*key, *sums) for key, sums in found.items()]
    return sorted(made, key=lambda each: -each.bytes)


def _exchanges(
    program: Program, body: Computation, instruction: Instruction
) -> Iterator[tuple[str, float, str]]:
    """Kind, bytes of the whole arrays, and attributes, of the exchange that an instruction is."""
    kind = instruction.op.removesuffix("-start")
    if kind in KINDS:
        yield kind, _whole(kind, body, instruction), instruction.attributes
    if instruction.op != "fusion":
        return
    # On TPUs a fusion may begin an exchange, others go on with it while they multiply, and another
    # ends it: all of them name it, and its chain.
    begins = instruction.name.startswith("async-collective-start")
    for name in instruction.called:
        inner = program.computations[name]
        for found in inner.instructions:
            if begins or "chain_id=" not in found.attributes:
                for kind, size, attributes in _exchanges(program, inner, found):
                    # A TPU's reduce-scatter is the fusion of an all-reduce and a slice of it.
                    scattered = name.startswith("all-reduce-scatter")
                    yield "reduce-scatter" if scattered else kind, size, attributes


def _whole(kind: str, body: Computation, instruction: Instruction) -> float:
    def size(arrays: Sequence[Array]) -> float:
        return sum(array.bytes_anywhere for array in arrays)

    given = [array for found in body.operands(instruction) for array in found.results]
    if kind != "all-gather":
        return size(given)
    results = instruction.results
    starts = instruction.op.endswith("-start")
    return size(results[len(given) : 2 * len(given)] if starts else results)


def _hosts(group: Sequence[jax.Device]) -> int:
    tpu = group[0].platform == "tpu"
    return len({getattr(d, "slice_index", 0) if tpu else d.process_index for d in group})


def _links(group: Sequence[jax.Device], devices: Sequence[jax.Device], ring: int) -> int:
    """One for GPUs, which one switch joins; of a torus, those of the axes that the group is on."""
    if not ring:
        return 1
    of_group = zip(*(device.coords for device in group), strict=True)
    of_all = zip(*(device.coords for device in devices), strict=True)
    sides = [
        (len(set(side)), len(set(whole))) for side, whole in zip(of_group, of_all, strict=True)
    ]
    closed = [side == whole and whole % ring == 0 for side, whole in sides if side > 1]
    return max(1, sum(2 if each else 1 for each in closed))
