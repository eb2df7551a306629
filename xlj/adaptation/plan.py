"""Plans the training of an adaptation: its length, the shares of languages, its cost."""

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlj.config import Config
from xlj.data.rows import draws
from xlj.data.rows.batches import Batches
from xlj.data.rows.draws import BLOCK, sampling_rates
from xlj.data.rows.report import align_columns
from xlj.data.rows.store import Corpus, RowStore
from xlj.data.tokenizer.vocabulary import Fertility
from xlj.io.own_process import StepMemory
from xlj.models.lowering import product
from xlj.sharding import devices, meshes
from xlj.sharding.trees import named_leaves
from xlj.training import memory, schedule, start
from xlj.training import state as states
from xlj.training.prefetch import Prefetch
from xlj.training.resources import jitted_steps
from xlj.training.run_flops import RunFlops
from xlj.training.schedule import MANY, Schedule

_ENOUGH_WORDS = 1_000_000
_ENOUGH_HELD_OUT = 200  # lines
_SCALED = ("warmup_steps", "decay_steps")
_LEAST = {"eval_every": 5, "checkpoint_every": 5, "log_every": 20}  # minimum times per run
_TEXT = "text"
_GIB = 2**30


def choose_sampled(
    store: RowStore, config: Config, new: Sequence[str], replay: Sequence[str], share: float
) -> tuple[str, ...]:
    """Returns the value of `data.sampled` that gives the languages of `replay` the share `share`.

    This is their share of the text that the run samples, above 0 and below 1; the languages of
    `new` get the rest. The value is empty if no language of `replay`, or no language of `new`, has
    text.
    """
    tokens = {task.name.partition(".")[2]: task.train.tokens for task in store.tasks(_TEXT)}
    natural = sampling_rates(tokens, config.data.alpha)
    of_new = sum(natural.get(name, 0.0) for name in new)
    of_old = sum(natural.get(name, 0.0) for name in replay)
    if not of_new or not of_old:
        return ()
    factor = share * of_new / ((1 - share) * of_old)
    return (*new, *(f"{name}={factor:.6g}" for name in replay if name in natural))


def choose_steps(config: Config, store: RowStore, new: Sequence[str]) -> int:
    """Returns the config's number of steps, reduced to at most 20 passes (`schedule.MANY`).

    These are passes over the text of all new languages together, and, in each phase, over the rows
    of each kind, of which a run would warn (`schedule.make_warnings`). Each phase has a step.
    """
    planned = Schedule(config, store)
    passes = [count_passes(config, store, new)]
    for phase in planned.phases:
        passes += planned.passes(phase.start, phase.end).values()
    most = int(MANY * config.train.steps / max(passes))
    return min(config.train.steps, max(len(planned.phases), most))


def with_steps(config: Config, steps: int, explicit: Collection[str] = ()) -> Config:
    """Returns the config with another number of steps.

    Warm-up, decay and the starts of phases change in proportion. Intervals are shortened so that
    the run evaluates and saves at least 5 times, and logs at least 20 times.

    Args:
      explicit: paths of the config keys that the user set, such as `train.eval_every`. The
        intervals, warm-up and decay do not change if the user set them.
    """
    scale = steps / config.train.steps
    rates: dict[str, Any] = {
        name: round(getattr(config.optimizer, name) * scale)
        for name in _SCALED
        if f"optimizer.{name}" not in explicit
    }
    intervals: dict[str, Any] = {
        name: max(1, min(getattr(config.train, name), steps // times))
        for name, times in _LEAST.items()
        if f"train.{name}" not in explicit
    }
    phases = {
        name: {**phase, "start_step": max(1, round(phase["start_step"] * scale))}
        for name, phase in config.phases.items()
    }
    return dataclasses.replace(
        config,
        train=dataclasses.replace(config.train, steps=steps, **intervals),
        optimizer=dataclasses.replace(config.optimizer, **rates),
        phases=phases,
    )


def count_passes(config: Config, store: RowStore, new: Sequence[str]) -> float:
    """Returns the number of passes of a run over the text of all new languages together."""
    drawn = 0.0
    for phase in config.schedule:
        for options in phase.active().values():
            if options.rows == _TEXT:
                counts = draws.count_draws(store, options, phase.config)
                share = sum(counts.get(f"{_TEXT}.{name}", 0) for name in new) / BLOCK
                drawn += share * options.batch_size * (phase.end - phase.start)
    rows = sum(task.train.rows for task in store.tasks(_TEXT) if task.name.partition(".")[2] in new)
    return drawn / max(1, rows)


class Cost(NamedTuple):
    """The cost of a run on the devices of this machine."""

    operations: float
    """Floating-point operations of matrix products."""
    seconds: float
    """Estimated time of the run."""
    bytes: int
    """Bytes per device for the parameters, the gradients and the optimizer's state. Activations
    need additional memory."""

    parameters: int
    """The number of parameters of the layers."""

    def __str__(self) -> str:
        hours = self.seconds / 3600
        minutes = max(1, round(60 * hours))
        shown = f"{minutes} minute{'s' * (minutes > 1)}" if hours < 1 else f"{hours:.1f} hours"
        return (
            f"about {shown} of training steps for {self.operations:.2g} operations, at half the "
            "speed of a matrix product on this machine, plus the time of compiling, evaluations "
            f"and measures; at least {self.bytes / _GIB:.2f} GiB of memory per device, "
            "and more for activations"
        )


def estimate_cost(config: Config, store: RowStore) -> Cost:
    """Estimates the cost of a run; measures the speed of a matrix product for this."""
    mesh = meshes.make_mesh(config)
    config, corpus = config.for_platform(mesh.devices.flat[0].platform), Corpus.of(store)
    operations = RunFlops(config, Batches(store, config)).until(config.train.steps)
    state = memory.state_bytes(config, corpus, mesh)
    gradients = sum(size for name, size in state.items() if name.startswith("params/"))
    shapes = jax.eval_shape(lambda: states.init(config, corpus, 0)).params
    parameters = schedule.count_layers(named_leaves(shapes))
    rate = mesh.size * _operations_per_second(config.model.hidden, config.model.dtype)
    return Cost(
        operations.xlj,
        operations.xlj / (_EFFICIENCY * rate),
        sum(state.values()) + gradients,
        parameters,
    )


def measure_step(config: Config, store: RowStore) -> float:
    """Returns the median time of a few train steps in seconds, without their compilation.

    The steps start from random weights, and are not part of a run.
    """
    mesh = meshes.make_mesh(config)
    config, corpus = start.with_dtype(config, None, mesh), Corpus.of(store)
    sharding, seed = states.sharding(config, corpus, mesh), np.uint32(config.train.seed)
    state = states.jitted_init(config, corpus, mesh, sharding)(seed)
    step = jitted_steps(config, corpus, mesh, sharding)[0]
    planned, times = Schedule(config, store).at(0), []
    with (
        contextlib.closing(StepMemory(mesh.devices.flat[0].platform == "cpu")) as step_memory,
        contextlib.closing(Prefetch(Batches(store, config), mesh, 0, _MEASURED)) as prefetch,
    ):
        for batch, _ in prefetch:
            if not step.is_compiled(batch):
                step.compile(state, batch, seed, planned.rates, planned.filled)
            begin = time.perf_counter()
            with step_memory.retain():
                state, _ = step(state, batch, seed, planned.rates, planned.filled)
                jax.block_until_ready(state)
            times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


_MEASURED = 6
"""The number of steps whose time is measured; the first does not count."""

_EFFICIENCY = 0.5
"""Operations per second of a whole step divided by those of a matrix product of the model's size
(docs/experiments/adapting.md)."""


def _operations_per_second(hidden: int, dtype: str) -> float:
    """Measures the operations per second of a matrix product of the model's size on one device."""
    rows = 4096 if devices.platform() == "cpu" else 65_536  # fewer are too fast to time on a GPU
    x, weights = jnp.ones((rows, hidden), dtype), jnp.ones((hidden, 4 * hidden), dtype)
    multiply = jax.jit(partial(product, dtype=jnp.dtype(dtype)))
    times = []
    for _ in range(6):
        begin = time.perf_counter()
        multiply(x, weights).block_until_ready()
        times.append(time.perf_counter() - begin)
    return 2 * rows * hidden * 4 * hidden / statistics.median(times[1:])


def format_table(config: Config, store: RowStore) -> list[str]:
    """Returns a table of the phases, as `xlj train --dry_run` prints it."""
    table = schedule.make_table(Schedule(config, store), store)
    return [line.rstrip() for line in align_columns(table, left=(0, 3, 6))]


def give_advice(
    counts: Mapping[str, Fertility],
    store: RowStore,
    config: Config,
    new: Sequence[str],
    parameters: int,
) -> list[str]:
    """Returns lines of advice for new languages with little text and for small models, then the
    run's other warnings.

    Args:
      counts: the counts of words in the text of each new language. If only a sample of a language's
        text was read, the language has enough text and is missing.
      parameters: the number of parameters of the model's layers.
    """
    lines = []
    of_text = {task.name.partition(".")[2]: task for task in store.tasks(_TEXT)}
    for name in new:
        task = of_text.get(name)
        if task is None:  # a sentence encoder trains on pairs of the language
            continue
        assert task.text is not None
        sentences = task.text.sentences
        if name in counts and (words := counts[name].words) < _ENOUGH_WORDS:
            lines.append(
                f"{name} has {sentences:,} lines ({words:,} words), which is little: below "
                f"about {_ENOUGH_WORDS:,} words, sentence pairs with an old language and text of "
                "related languages help more than further passes (a larger --steps)"
            )
        held = task.held_out.sentences
        if held < _ENOUGH_HELD_OUT and config.data.held_out_share < 0.2:
            share = min(0.2, _ENOUGH_HELD_OUT / max(1, sentences))
            lines.append(
                f"{name} has {held} held-out lines, so its held-out loss is imprecise; to hold out "
                f"about {int(share * sentences)}, add --config.data.held_out_share={share:.2g}"
            )
    rate = config.optimizer.learning_rate
    if rate < (suggested := schedule.rate_for_size(rate, parameters)):
        lines.append(
            f"the layers of the model have {parameters:,} parameters, for which we suggest "
            f"--config.optimizer.learning_rate={suggested:g} instead of {rate:g} "
            f"({schedule.describe_lowest_rates()})"
        )
    return lines + schedule.make_warnings(Schedule(config, store), store, "--steps")
