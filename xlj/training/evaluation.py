"""Evaluation on held-out rows: losses by objective and language, always with the same masks."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

import jax
import numpy as np
from jax.sharding import Mesh

from xlj.config import Config, Model
from xlj.contracts.arrays import PyTree
from xlj.data.rows import draws, row_kind
from xlj.data.rows.store import Corpus, RowStore
from xlj.io.hashing import sample
from xlj.objectives.objective import LossSums, Objective, Rows
from xlj.sharding import meshes
from xlj.sharding.devices import on_mesh
from xlj.sharding.trees import Params, replicated, shard
from xlj.training.state import State
from xlj.training.step import Microbatches, row_rngs

_SEED = 0  # of the masks; it does not depend on `train.seed`, so that runs can be compared


class Check(Protocol):
    """A function that an evaluation calls between batches.

    To stop the evaluation, the function raises an exception.

    Args:
      done: number of rows that the evaluation has finished.
    """

    def __call__(self, done: int = 0, /) -> object: ...


Probe = Callable[[State, Check], Mapping[str, float]]
"""A function (state, check) -> metrics `eval/NAME/LANGUAGE/MEASURE`, by name. It calls `check`
between batches. `check` raises `Interrupted` if the run should stop."""


class Evaluation:
    """Evaluates a state on up to `train.eval_rows` held-out rows of each language or pair.

    Rows are masked as in training. Dropout is off.

    Args:
      store: the rows.
      objectives: of the run, by name. Each objective has the options of the first phase that uses
        the objective, so that the metrics of all phases can be compared.
      mesh: of all devices; each process evaluates the rows on its own devices.
    """

    def __init__(
        self, store: RowStore, config: Config, objectives: Mapping[str, Objective], mesh: Mesh
    ):
        self._rows: dict[str, tuple[dict[str, np.ndarray], list[str]]] = {}
        self._empty: dict[str, dict[str, np.ndarray]] = {}  # a row without content
        self._mesh = mesh
        self._perplexities: set[str] = set()  # losses whose exponential is reported too
        if config.evaluation.perplexity:
            losses = (item for o in objectives.values() for item in o.losses.items())
            self._perplexities = {name for name, loss in losses if loss.over_vocabulary}
        microbatches = Microbatches(config.train.gradient_accumulation_steps)
        self._programs: dict[str, jax.stages.Compiled] = {}
        self._functions = {
            name: jax.jit(
                on_mesh(mesh, partial(_loss_sums, objectives[name], name, microbatches)),
                out_shardings=replicated(mesh),
                compiler_options=meshes.QUICK,
            )
            for name in objectives
        }
        self._batch: dict[str, int] = {}  # rows per batch, as many as in a training step
        corpus = Corpus.of(store)
        for name, options in config.objectives_on().items():
            self._batch[name] = options.batch_size
            row_groups, owners = [], []
            first = next(p for p in config.schedule if name in p.config.objectives.active())
            for task in draws.tasks_of_length(store, options, first.config):
                count = min(task.held_out.rows, config.train.eval_rows)
                # Rows on disk are sorted by the lengths of their examples, so they are sampled.
                chosen = sample(count, task.held_out.rows)
                side = np.asarray(corpus.sides(task.languages), np.int32)
                sides = np.broadcast_to(side, (count, *side.shape))
                rows = {**store.read(task.name, "held_out", chosen), "languages": sides}
                if count:
                    row_groups.append(rows)
                owners += [task.name.partition(".")[2]] * count
                no_sides = np.zeros((1, *side.shape), np.int32)
                self._empty[name] = {**row_kind.empty(task.fields, 1), "languages": no_sides}
            if owners:
                fields = row_groups[0]
                joined = {
                    field: np.concatenate([part[field] for part in row_groups]) for field in fields
                }
                self._rows[name] = joined, owners

    def __call__(self, state: State, check: Callable[[], object] = bool) -> dict[str, float]:
        """Returns the metrics of a state.

        - eval/LOSS/LANGUAGE/loss and eval/LOSS/LANGUAGE/accuracy: means over the predictions of a
          language or pair. Losses are in nats per prediction of a token or a sentence.
        - eval/LOSS/loss and eval/LOSS/accuracy: means over languages and pairs, so that small
          languages count as much as large ones.
        - eval/LOSS/perplexity and eval/LOSS/LANGUAGE/perplexity, with `evaluation.perplexity`: the
          exponential of each loss over the vocabulary. The exponential of a mean loss is a
          geometric mean of perplexities.
        - average/LOSS/loss and the other means over languages, if the state has an average of the
          parameters: the same measures, with the averaged parameters.

        Args:
          check: called before each batch; it raises an exception to stop the evaluation.
        """
        metrics = self._measure(state, check)
        if state.average:
            averaged = dataclasses.replace(state, params=state.average)
            for key, value in self._measure(averaged, check).items():
                _, *names = key.split("/")
                metrics |= {"/".join(["average", *names]): value} if len(names) == 2 else {}
        return metrics

    def _measure(self, state: State, check: Callable[[], object]) -> dict[str, float]:
        """Returns the metrics of a state's parameters, without those of the average."""
        if not self._programs:
            self._compile(state)
        metrics: dict[str, float] = {}
        for name, (_, owners) in self._rows.items():
            for loss, sums in self._loss_sums(name, state, check).items():
                metrics |= _by_language(loss, sums, owners)
        return metrics | _perplexities(metrics, self._perplexities)

    def _compile(self, state: State) -> None:
        """Compiles the programs of all objectives in parallel; one compilation uses few cores."""

        def compile_loss(name: str) -> jax.stages.Compiled:
            return self._functions[name].lower(*self._arguments(name, state, 0)).compile()

        with ThreadPoolExecutor(max(1, len(self._rows))) as threads:
            programs = threads.map(compile_loss, self._rows)
            self._programs = dict(zip(self._rows, programs, strict=True))

    def _arguments(self, name: str, state: State, start: int) -> tuple[Any, ...]:
        """Returns the arguments of an objective's program for the batch that begins at row `start`.

        Rows of padding fill up the last batch.
        """
        (rows, owners), empty = self._rows[name], self._empty[name]
        size = self._batch[name]
        missing = max(0, start + size - len(owners))
        padded = {
            field: np.concatenate([array[start : start + size], *[empty[field]] * missing])
            for field, array in rows.items()
        }
        batch: Rows = shard(padded, self._mesh)
        return state.params, state.objectives.get(name, {}), batch, np.int32(start)

    def _loss_sums(
        self, name: str, state: State, check: Callable[[], object]
    ) -> dict[str, LossSums]:
        """Returns the sums of each loss of an objective, by row, as NumPy arrays [rows]."""
        results, count = [], len(self._rows[name][1])
        for start in range(0, count, self._batch[name]):
            check()
            sums = self._programs[name](*self._arguments(name, state, start))
            results.append(jax.device_get(sums))
        return jax.tree.map(lambda *x: np.concatenate(x)[:count], *results)


def by_phase(config: Config, make: Callable[[Model], Probe]) -> Probe:
    """Returns a probe that uses the model options of the phase in which a state was trained last.

    Args:
      make: (model options of a phase) -> a probe that uses these options.
    """
    models = dict.fromkeys(phase.config.model for phase in config.schedule)
    probes = {model: make(model) for model in models}

    def measure(state: State, check: Check = bool) -> Mapping[str, float]:
        last = max(0, int(state.progress.step) - 1) if len(probes) > 1 else 0
        return probes[config.phase_at(last).config.model](state, check)

    return measure


def _loss_sums(
    objective: Objective,
    name: str,
    microbatches: Microbatches,
    params: Params,
    objective_state: PyTree,
    rows: Rows,
    start: jax.Array,
) -> dict[str, LossSums]:
    """Computes the sums of each loss of an objective, by row.

    Args:
      rows: a batch of held-out rows.
      start: number of the batch's first row among the held-out rows, int32 []. A row's masks depend
        on its number, and not on the batch.
    """
    slots = start + microbatches.slots(len(rows["languages"]))
    inputs = objective.corrupt(rows, row_rngs(_SEED, f"{name}/evaluation", 0, slots))
    inputs = objective.targets(params, objective_state, inputs, microbatches.map)
    return microbatches.map(
        lambda part: objective.loss(params, objective_state, part, None), inputs
    )


def _by_language(loss: str, sums: LossSums, owners: list[str]) -> dict[str, float]:
    """Returns the mean loss and accuracy of each language or pair, and the means over languages.

    Languages without predictions are left out.

    Args:
      loss: name of the loss.
      sums: of each row, [rows].
      owners: the language or pair of each row.
    """
    metrics: dict[str, float] = {}
    rows: dict[str, list[int]] = defaultdict(list)
    for row, language in enumerate(owners):
        rows[language].append(row)
    for measure, values in (("loss", sums.sum), ("accuracy", sums.correct)):
        means = []
        for language, of_language in rows.items():
            count = np.asarray(sums.count)[of_language].sum()
            if count:
                total = np.asarray(values)[of_language].sum(dtype=np.float64)
                means.append(float(total / count))
                metrics[f"eval/{loss}/{language}/{measure}"] = means[-1]
        if means:
            metrics[f"eval/{loss}/{measure}"] = float(np.mean(means))
    return metrics


def _perplexities(metrics: Mapping[str, float], losses: Collection[str]) -> dict[str, float]:
    """Returns the perplexities of these losses, from metrics eval/LOSS/.../loss."""
    return {
        key.removesuffix("loss") + "perplexity": float(np.exp(value))
        for key, value in metrics.items()
        if key.split("/")[1] in losses and key.endswith("/loss")
    }
