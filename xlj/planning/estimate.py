"""The time that a compiled program takes at the rates that kinds of kernels were measured at."""

from typing import NamedTuple

from xlj.models.fused_attention import attend
from xlj.planning import collectives, products, traffic
from xlj.planning.chips import LAUNCH, SHARES, Chip
from xlj.planning.hlo import Program


class Work(NamedTuple):
    """What the kernels of a program do on one device."""

    seconds: dict[str, float]
    """At the chip's peaks, by kind of kernel (`chips.SHARES`)."""
    launches: float
    """How many kernels run."""

    def estimate(self) -> dict[str, float]:
        """Seconds by kind of kernel at the measured rates, and those of "launches"."""
        times = {kind: value / SHARES[kind] for kind, value in self.seconds.items()}
        return times | {"launches": self.launches * LAUNCH}


def work(program: Program, chip: Chip) -> Work:
    """Sums the kernels of a program by kind. A kernel takes as long as its products or as its
    traffic, whichever is longer at the measured rates; one whose traffic is longer is of the kind
    "memory". Exchanges between devices are not counted: `collectives.collectives` has them.

    Raises:
      ValueError: as `products.products`.
    """
    seconds, launches = dict.fromkeys(SHARES, 0.0), 0.0
    for body, instruction, times in program.executed():
        moved = traffic.of_instruction(program, body, instruction)
        made = products.by_type(program, body, instruction)
        if not (moved or made) or instruction.op.removesuffix("-start") in collectives.KINDS:
            continue
        is_attention = products.kernel(instruction) in attend.PRODUCTS
        kind = "attention" if is_attention else "products"
        multiplying = sum(count / chip.rate(dtype) for dtype, count in made.items())
        moving = moved / chip.bandwidth
        if moving / SHARES["memory"] > multiplying / SHARES[kind]:
            kind = "memory"
        seconds[kind] += times * (moving if kind == "memory" else multiplying)
        launches += times
    return Work(seconds, launches)
