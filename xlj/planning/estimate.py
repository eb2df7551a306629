"""Estimates the time of a compiled program from measured rates of kinds of kernels."""

from typing import NamedTuple

from xlj.models.fused_attention import attend
from xlj.planning import collectives, products, traffic
from xlj.planning.chips import LAUNCH, SHARES, Chip
from xlj.planning.hlo import Program


class Work(NamedTuple):
    """The work of a program's kernels on one device.

    Attributes:
      seconds: the time at the chip's peak rates, by kind of kernel (`chips.SHARES`).
      launches: the number of kernels that run.
    """

    seconds: dict[str, float]
    launches: float

    def estimate(self) -> dict[str, float]:
        """Returns seconds by kind of kernel at the measured rates, and the overhead of
        "launches"."""
        times = {kind: value / SHARES[kind] for kind, value in self.seconds.items()}
        return times | {"launches": self.launches * LAUNCH}


def work(program: Program, chip: Chip) -> Work:
    """Sums the kernels of a program by kind.

    A kernel takes the time of its products or of its traffic, whichever is longer at the measured
    rates. If the traffic takes longer, the kind is "memory". Collectives are not included; see
    `collectives.collectives`.

    Raises:
      ValueError: as `products.products`.
    """
    seconds, launches = dict.fromkeys(SHARES, 0.0), 0.0
    for body, instruction, times in program.executed():
        size = traffic.of_instruction(program, body, instruction)
        operations = products.by_type(program, body, instruction)
        if not (size or operations) or instruction.op.removesuffix("-start") in collectives.KINDS:
            continue
        is_attention = products.kernel(instruction) in attend.PRODUCTS
        kind = "attention" if is_attention else "products"
        multiplying = sum(count / chip.rate(dtype) for dtype, count in operations.items())
        moving = size / chip.bandwidth
        if moving / SHARES["memory"] > multiplying / SHARES[kind]:
            kind = "memory"
        seconds[kind] += times * (moving if kind == "memory" else multiplying)
        launches += times
    return Work(seconds, launches)
