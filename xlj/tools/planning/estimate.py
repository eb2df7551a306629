"""Estimates the time of a compiled program from the measured rates of kinds of kernels."""

from typing import NamedTuple

from xlj.tools.planning import collectives, products, traffic
from xlj.tools.planning.chips import LAUNCH, SHARES, Chip
from xlj.tools.planning.hlo import Program


class Work(NamedTuple):
    """The work of a program's kernels on one device.

    Attributes:
      seconds: the time of the kernels at the chip's peak rates, by kind of kernel (`chips.SHARES`).
      launches: the number of kernel launches.
    """

    seconds: dict[str, float]
    launches: float

    def estimate(self) -> dict[str, float]:
        """Returns the estimated seconds by kind of kernel, and the overhead of "launches"."""
        times = {kind: value / SHARES[kind] for kind, value in self.seconds.items()}
        return times | {"launches": self.launches * LAUNCH}


def work(program: Program, chip: Chip) -> Work:
    """Sums the times of a program's kernels by kind.

    A kernel counts as a product (or as attention) if its operations take longer than its memory
    traffic at the measured rates. Otherwise it counts as "memory". Collectives are not included
    (see `collectives.collectives`).

    Raises:
      ValueError: on a library call whose operations are unknown.
    """
    seconds, launches = dict.fromkeys(SHARES, 0.0), 0.0
    for body, instruction, times in program.executed():
        size = traffic.of_instruction(program, body, instruction)
        operations = products.by_type(program, body, instruction)
        if not (size or operations) or instruction.op.removesuffix("-start") in collectives.KINDS:
            continue
        # Of xlj's kernels, only those of attention compute products.
        is_kernel = program.kernel_cost(body, instruction) is not None
        is_attention = is_kernel or products.is_cudnn_attention(instruction)
        kind = "attention" if is_attention else "products"
        product_seconds = sum(count / chip.rate(dtype) for dtype, count in operations.items())
        memory_seconds = size / chip.bandwidth
        if memory_seconds / SHARES["memory"] > product_seconds / SHARES[kind]:
            kind = "memory"
        seconds[kind] += times * (memory_seconds if kind == "memory" else product_seconds)
        launches += times
    return Work(seconds, launches)
