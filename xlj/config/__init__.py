"""Config schema, checks and recipe variants. Imports no JAX."""

from xlj.config.checks import parse
from xlj.config.data_section import Data
from xlj.config.fields import ConfigError, as_tree, lookup
from xlj.config.objectives import Options, option, register, registered
from xlj.config.optimizers import register_optimizer, registered_optimizers
from xlj.config.row_kinds import max_pairs
from xlj.config.schema import Config, Objectives, Phase, build, default, keys, record
from xlj.config.sections import FREEZABLE, HELD_OUT, Mesh, Model, Optimizer, Train, Transfer
