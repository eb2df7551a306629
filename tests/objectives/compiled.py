"""Objectives with compiled functions; without this, each of their operations is compiled alone."""

import dataclasses

import jax

from xlj.objectives.objective import Objective


def compiled(objective: Objective) -> Objective:
    """Compiles each function of an objective to one program."""
    changes = {"targets": jax.jit(objective.targets, static_argnums=3)}
    if objective.evolves:
        changes["update"] = jax.jit(objective.update)
    for name in ("corrupt", "count", "loss", "init_state"):
        changes[name] = jax.jit(getattr(objective, name))
    parts = {name: jax.jit(make) for name, make in objective.parts.items()}
    return dataclasses.replace(objective, parts=parts, **changes)
