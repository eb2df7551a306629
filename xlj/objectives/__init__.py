"""Objectives: each corrupts rows without parameters, then sums its losses.

`build` is the one place where a config's objectives become functions.
"""

from __future__ import annotations

from collections.abc import Callable

from xlj.config import LABELLED, Config, phase_configs, row_kind
from xlj.data.rows.corpus import Corpus
from xlj.objectives import btmlm, camlm, distillation, dwa, mlm, retrieval, rtd, supervised, xlco
from xlj.objectives.objective import Objective

_MAKERS: dict[str, Callable[..., Objective]] = {
    "mmlm": mlm.objective,
    "tlm": mlm.objective,
    "camlm": camlm.objective,
    "btmlm": btmlm.objective,
    "mrtd": rtd.objective,
    "trtd": rtd.objective,
    "dwa": dwa.objective,
    "xlco": xlco.objective,
    "retrieval": retrieval.objective,
    "distillation": distillation.objective,
    **dict.fromkeys(LABELLED, supervised.objective),
}


def build(config: Config, corpus: Corpus) -> dict[str, Objective]:
    """The objectives that are on, by name. `config` is a phase's."""
    return {
        name: _MAKERS[name](name, row_kind(name), options, config.model, corpus)
        for name, options in config.objectives.active().items()
    }


def build_all(config: Config, corpus: Corpus) -> dict[str, Objective]:
    """The objectives that are on in any phase of a run, each as in the first phase that has it."""
    objectives: dict[str, Objective] = {}
    for _, phase in phase_configs(config):
        objectives = build(phase, corpus) | objectives
    return objectives
