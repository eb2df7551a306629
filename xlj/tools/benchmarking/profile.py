"""Profiles a train step with JAX's profiler, and sums the times of kernels by kind."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
from jax.profiler import ProfileData

from xlj.config import Config
from xlj.tools.benchmarking.measurements import Measurement, Size, format_number
from xlj.tools.benchmarking.train_steps import TrainStep
from xlj.tools.planning.hlo import Program

KINDS = {
    "attention": r"attention",
    "vocabulary": r"logits_",
    "norms": r"add_norm",
    "products": r"\S*(gemm|nvjet|cutlass|xmma|cublas|dot)",
    "reductions": r"\S*reduce",
    "optimizer": r"\S* (jit\(\w+\)/)+\w+$",
    "copies": r"\S*(memcpy|memset|copy|transpose|concatenate|slice|pad|wrapped_convert)",
    "elementwise": r"",
}
"""Kinds of kernels, each with a regular expression.

The expression matches a kernel's name, followed by a space and the path of the function from which
the kernel was traced. The first kind that matches applies. Attention, vocabulary and norms include
Pallas kernels only. Kernels of the optimizer come from functions that are neither in a layer nor
differentiated."""


def measure_kinds(config: Config, size: Size, names: Sequence[str]) -> Iterator[Measurement]:
    """Profiles the train step of each objective; all times are in milliseconds.

    For each objective it yields the time of the whole step, then the sums of kernel times by kind,
    largest first. The sums do not add up to the whole time, because kernels can overlap, and the
    device can wait between kernels.

    Args:
      names: the names of the objectives.
    """
    for name in names:
        step = TrainStep(config, size, name, config.model.dtype)
        yield Measurement("profile", name, 1e3 * step.seconds(size.repeats), "ms")
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                for _ in range(size.repeats):
                    step.run()
            (trace,) = Path(folder).rglob("*.xplane.pb")
            by_kind = sum_times(ProfileData.from_file(str(trace)), step.program.as_text() or "")
        for kind, kernels in sorted(by_kind.items(), key=lambda item: -item[1].total()):
            longest, ms = kernels.most_common(1)[0]
            note = f"longest kernel {longest}, {format_number(ms / size.repeats)} ms"
            total = kernels.total() / size.repeats
            yield Measurement("profile", f"{name} {kind}", total, "ms", note=note)


def sum_times(trace: ProfileData, program: str) -> dict[str, Counter[str]]:
    """Sums the times in a trace by kind and kernel, in milliseconds.

    Kernels whose names differ only by numbers at the end are summed.

    Args:
      program: the text of the compiled program that was profiled.
    """
    sources = {
        _kernel(instruction.name): instruction.source
        for computation in Program(program).computations.values()
        for instruction in computation.instructions
    }
    on_device = [plane for plane in trace.planes if plane.name.startswith("/device:")]
    by_kind: dict[str, Counter[str]] = {}
    for plane in on_device or trace.planes:
        for line in plane.lines:
            if on_device and not line.name.startswith(("Stream", "XLA Ops")):
                continue  # other lines contain the same times, summed by module or by step
            for event in line.events:
                name = _kernel(event.name)
                if on_device or name in sources:
                    kind = kind_of(name, sources.get(name, ""))
                    kernels = by_kind.setdefault(kind, Counter())
                    kernels[re.sub(r"(_\d+)+$", "", name)] += event.duration_ns / 1e6
    return by_kind


def kind_of(kernel: str, source: str) -> str:
    """Returns the first kind in `KINDS` that matches a kernel and the path of the kernel's
    function."""
    both = f"{kernel} {source}"
    return next(kind for kind, pattern in KINDS.items() if re.match(pattern, both, re.IGNORECASE))


def _kernel(name: str) -> str:
    """Replaces dots and hyphens by underscores, since a kernel has its instruction's name in this
    form."""
    return re.sub(r"\W", "_", name)
