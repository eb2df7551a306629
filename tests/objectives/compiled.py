"""Compiles the functions of objectives; otherwise, JAX would compile each operation separately."""

import dataclasses

import jax

from xlj.objectives.objective import Objective


def compiled(objective: Objective) -> Objective:
    """Returns an objective whose functions are compiled, each to one program."""
    changes = {"targets": jax.jit(objective.targets, static_argnums=3)}
    if objective.evolves:
        changes["update"] = jax.jit(objective.update)
    for name in ("corrupt", "count", "loss", "init_state"):
        changes[name] = jax.jit(getattr(objective, name))
    parts = {name: jax.jit(make) for name, make in objective.parts.items()}
    return dataclasses.replace(objective, parts=parts, **changes)
