"""Losses on held-out rows, per objective and language, always with the same masks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xlj.config import Config, phase_configs
from xlj.data.layout import PAD
from xlj.data.permutation import permute
from xlj.data.store import RowStore
from xlj.objectives import Objective
from xlj.objectives.losses import Tally
from xlj.training.partitioning import ROWS
from xlj.training.randomness import row_keys

_SEED = 0  # of the masks: the same for every run, so that runs can be compared


class Evaluation:
    """Evaluates parameters on up to `train.eval_rows` held-out rows of each language or pair.

    Args:
      objectives: of the run; corruption is theirs, dropout is off.
      mesh: the devices; each process evaluates the rows of its own.
    """

    def __init__(
        self, store: RowStore, config: Config, objectives: Mapping[str, Objective], mesh: Mesh
    ):
        self._rows: dict[str, tuple[np.ndarray, list[str]]] = {}
        self._sharding = NamedSharding(mesh, ROWS)
        everywhere = NamedSharding(mesh, PartitionSpec())
        self._functions = {
            name: jax.jit(partial(_tally, objectives[name], name), out_shardings=everywhere)
            for name in objectives
        }
        self._batch: dict[str, int] = {}  # rows at a time, as many as in a training microbatch
        for _, phase in phase_configs(config):
            for name, options in phase.objectives.active().items():
                self._batch.setdefault(name, options.batch_rows // phase.train.accumulation)
        for name in objectives:
            rows, owners = [], []
            for task in store.tasks(objectives[name].kind):
                count = min(task.held_out.rows, config.train.eval_rows)
                # A fixed sample: rows on disk are in order of the examples' lengths.
                like = np.ones(count, np.int64)
                sample = permute(
                    np.arange(count), task.held_out.rows * like, like.astype(np.uint64)
                )
                rows.append(store.read(task.name, "held_out", sample))
                owners += [task.name.partition(".")[2]] * count
            if owners:
                self._rows[name] = (np.concatenate(rows), owners)

    def __call__(self, params: Any) -> dict[str, float]:
        """Metrics eval/OBJECTIVE/LANGUAGE/loss and /accuracy; eval/OBJECTIVE/loss is their mean.

        Losses are nats a predicted token; a language's mean is over its predicted tokens, an
        objective's over languages, so that small languages count.
        """
        metrics: dict[str, float] = {}
        for name, (rows, owners) in self._rows.items():
            tally = self._tally(name, params, rows)
            languages = list(dict.fromkeys(owners))
            for measure, values in (("loss", tally.sum), ("accuracy", tally.correct)):
                means = []
                for language in languages:
                    mine = np.array([owner == language for owner in owners])
                    total = values[mine].sum(dtype=np.float64)
                    means.append(float(total / max(tally.count[mine].sum(), 1)))
                    metrics[f"eval/{name}/{language}/{measure}"] = means[-1]
                metrics[f"eval/{name}/{measure}"] = float(np.mean(means))
        return metrics

    def _tally(self, name: str, params: Any, rows: np.ndarray) -> Any:
        """Tallies of all rows, as NumPy arrays, batch by batch of a fixed shape."""
        size, parts = self._batch[name], []
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            padding = np.full((size - len(part), rows.shape[1]), PAD, rows.dtype)
            part = np.concatenate([part, padding])
            batch = jax.make_array_from_callback(part.shape, self._sharding, part.__getitem__)
            parts.append(jax.device_get(self._functions[name](params, batch, start)))
        return jax.tree.map(lambda *x: np.concatenate(x)[: len(rows)], *parts)


def _tally(
    objective: Objective, name: str, params: Any, rows: jax.Array, start: jax.Array
) -> Tally:
    slots = start + jnp.arange(rows.shape[0])
    keys = row_keys(_SEED, f"{name}/evaluation", 0, slots)
    return objective.loss(params, objective.corrupt(rows, keys), None)
