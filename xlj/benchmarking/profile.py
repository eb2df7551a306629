"""Profiles a train step: sums the times of its kernels by kind, from JAX's profiler."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
from jax.profiler import ProfileData

from xlj.benchmarking.measurements import Measurement, Size, number
from xlj.benchmarking.train_steps import TrainStep
from xlj.config import Config
from xlj.planning.hlo import Program

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
"""Regular expressions for a kernel's name, followed by a space and the path of its traced function.

The first match determines a kernel's kind. Attention, vocabulary and norms are the Pallas kernels
only. The optimizer's functions are those outside of layers that are not differentiated."""


def each_kind(config: Config, size: Size, names: Sequence[str]) -> Iterator[Measurement]:
    """Profiles the train step of each of these objectives, in ms.

    It yields the whole step, then its kernels by kind, largest first. Kernels can overlap, and a
    device can wait between them.
    """
    for name in names:
        step = TrainStep(config, size, name, config.model.dtype)
        yield Measurement("profile", name, 1e3 * step.seconds(size.repeats), "ms")
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                for _ in range(size.repeats):
                    step.run()
            (trace,) = Path(folder).rglob("*.xplane.pb")
            by_kind = sums(ProfileData.from_file(str(trace)), step.program.as_text() or "")
        for kind, kernels in sorted(by_kind.items(), key=lambda item: -item[1].total()):
            longest, ms = kernels.most_common(1)[0]
            note = f"longest kernel {longest}, {number(ms / size.repeats)} ms"
            total = kernels.total() / size.repeats
            yield Measurement("profile", f"{name} {kind}", total, "ms", note=note)


def sums(trace: ProfileData, program: str) -> dict[str, Counter[str]]:
    """Sums the milliseconds in a trace by kind and kernel; ignores numbers at the end of names.

    Args:
      program: the text of the compiled program that ran.
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
                continue  # the same time, summed by module or by step
            for event in line.events:
                name = _kernel(event.name)
                if on_device or name in sources:
                    kind = kind_of(name, sources.get(name, ""))
                    kernels = by_kind.setdefault(kind, Counter())
                    kernels[re.sub(r"(_\d+)+$", "", name)] += event.duration_ns / 1e6
    return by_kind


def kind_of(kernel: str, source: str) -> str:
    """Returns the first of `KINDS` that matches a kernel and the path of its function."""
    both = f"{kernel} {source}"
    return next(kind for kind, pattern in KINDS.items() if re.match(pattern, both, re.IGNORECASE))


def _kernel(name: str) -> str:
    """Returns the name of an instruction's kernel."""
    return re.sub(r"\W", "_", name)
