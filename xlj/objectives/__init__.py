"""Pretraining objectives: each corrupts rows without parameters, then tallies its losses.

`build` is the one place where a config's objectives become functions.
"""

from __future__ import annotations

from collections.abc import Callable

from xlj.config import ROW_KINDS, Config, phase_configs
from xlj.data.corpus import Corpus
from xlj.objectives import btmlm, camlm, distillation, dwa, mlm, retrieval, rtd, xlco
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
}


def build(config: Config, corpus: Corpus) -> dict[str, Objective]:
    """The objectives that are on, by name. `config` is a phase's."""
    return {
        name: _MAKERS[name](name, ROW_KINDS[name], options, config.model, corpus)
        for name, options in config.objectives.active().items()
    }


def build_all(config: Config, corpus: Corpus) -> dict[str, Objective]:
    """The objectives that are on in any phase of a run, each as in the first phase that has it."""
    objectives: dict[str, Objective] = {}
    for _, phase in phase_configs(config):
        objectives = build(phase, corpus) | objectives
    return objectives
