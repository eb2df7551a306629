"""Configs: the schema, what it refuses, variants of recipes. Imports no JAX."""

from xlj.config.checks import parse
from xlj.config.fields import ConfigError, as_tree, lookup
from xlj.config.objectives import SUPERVISED, Options, Supervised, option, register, registered
from xlj.config.rows import ROW_KINDS
from xlj.config.schema import (
    FREEZABLE,
    HELD_OUT,
    AlignmentEvaluation,
    Config,
    Data,
    Mesh,
    Model,
    Objectives,
    Optimizer,
    RetrievalEvaluation,
    Train,
    Transfer,
    build,
    default,
    keys,
    record,
)

__all__ = [
    "FREEZABLE",
    "HELD_OUT",
    "ROW_KINDS",
    "SUPERVISED",
    "AlignmentEvaluation",
    "Config",
    "ConfigError",
    "Data",
    "Mesh",
    "Model",
    "Objectives",
    "Optimizer",
    "Options",
    "RetrievalEvaluation",
    "Supervised",
    "Train",
    "Transfer",
    "as_tree",
    "build",
    "default",
    "keys",
    "lookup",
    "option",
    "parse",
    "record",
    "register",
    "registered",
]
