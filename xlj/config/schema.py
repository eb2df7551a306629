"""The typed schema that every config is checked against.

A config file returns an `ml_collections.ConfigDict` that starts from `default()`, so every key can
be set in the file or on the command line. `xlj.config.checks` turns it once into the frozen
`Config` below.
"""

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import ml_collections

from xlj.config import fields, renamed
from xlj.config.fields import ConfigError, ConfigTree, Section, key
from xlj.config.objectives.options import Options, import_modules, module_digests, registered
from xlj.config.row_kinds import ROW_KINDS
from xlj.config.sections import Data, Evaluation, Mesh, Model, Optimizer, Train, Transfer


@dataclasses.dataclass(frozen=True)
class Objectives(Section, path="objectives"):
    """The objectives of a run, or of a phase of it."""

    normalisation: str = key(
        "per_objective",
        "per_objective: sum of weight * mean of each (ELECTRA, XLM-E); "
        "global: weighted sums over everything predicted (XLM-Align)",
        choices=("per_objective", "global"),
    )
    options: Mapping[str, Options] = fields.sections(registered)
    """The options of each by name, in the order in which they were registered."""

    def active(self) -> dict[str, Options]:
        """The options of the objectives that are on, by name."""
        return {name: options for name, options in self.options.items() if options.batch_rows}

    def __getattr__(self, name: str) -> Options:
        try:
            return self.__dict__["options"][name]
        except KeyError:
            raise AttributeError(f"there is no objective {name}") from None


class Phase(NamedTuple):
    """A phase of a run."""

    start: int
    """Its first step."""
    config: "Config"
    """The whole config from then on."""


@dataclasses.dataclass(frozen=True)
class Config(Section):
    """All that a run reads. `phases` maps a name to {start_step, and the keys of `data.alpha` and
    `objectives.*` that change from that step on}; each phase builds on the one before."""

    init_from: str = key(
        "", "workdir, checkpoint or Hugging Face folder whose parameters the run starts from"
    )
    objective_modules: tuple[str, ...] = key(
        (),
        "modules to import that register objectives (docs/own_objective.md) or optimizers "
        "(docs/train.md)",
    )
    transfer: Transfer = Transfer()
    data: Data = Data()
    model: Model = Model()
    objectives: Objectives = Objectives()
    optimizer: Optimizer = Optimizer()
    train: Train = Train()
    evaluation: Evaluation = Evaluation()
    mesh: Mesh = Mesh()
    phases: Mapping[str, ConfigTree] = dataclasses.field(
        default_factory=dict,
        metadata={"doc": "changes by step: {name: {start_step: N, data: {alpha: A}, ...}}"},
    )

    @functools.cached_property
    def schedule(self) -> tuple[Phase, ...]:
        """The phases of the run, in order of steps; the first begins at step 0.

        Raises:
          ConfigError: on a phase that changes what a phase may not, or nothing, or that starts
            where another does.
        """
        return _schedule(self)

    @functools.cached_property
    def objectives_by_phase(self) -> tuple[Mapping[str, Options], ...]:
        """The options of the objectives that are on in each phase, by name."""
        return tuple(phase.config.objectives.active() for phase in self.schedule)

    def options_by_phase(self) -> list[tuple[str, Options]]:
        """(name, options) of the objectives that are on in each phase, one phase after another."""
        return [item for active in self.objectives_by_phase for item in active.items()]

    def objectives_on(self) -> dict[str, Options]:
        """The objectives that are on in any phase, in the schema's order, each with the options of
        the first phase that has it."""
        first: dict[str, Options] = {}
        for active in reversed(self.objectives_by_phase):
            first |= active
        return {name: first[name] for name in self.objectives.options if name in first}

    def names_a_model(self) -> bool:
        """Whether `init_from`, or an objective (a teacher), names a stored model."""
        objectives = self.objectives_on().values()
        return bool(self.init_from) or any(options.models() for options in objectives)

    def row_kinds(self) -> tuple[str, ...]:
        """The kinds of rows that the run reads, in the order of `ROW_KINDS`."""
        read = {options.rows for options in self.objectives_on().values()}
        return tuple(kind for kind in ROW_KINDS if kind in read)

    def readers(self, path: str) -> list[str]:
        """The objectives, on or off, that read this key of the model."""
        return [name for name, options in self.objectives.options.items() if path in options.reads]

    def for_platform(self, platform: str) -> "Config":
        """The config with `model.dtype=auto` as the type for "cpu", "gpu" or "tpu".

        float32 is kept exact everywhere, which makes it slow on GPUs: XLA tries dozens of kernels
        for each product before the first step, and tensor cores multiply bfloat16 many times as
        fast as the parts of a float32."""
        if self.model.dtype != "auto":
            return self
        dtype = "float32" if platform == "cpu" else "bfloat16"
        return dataclasses.replace(self, model=dataclasses.replace(self.model, dtype=dtype))


def _schedule(config: Config) -> tuple[Phase, ...]:
    for name, changes in config.phases.items():
        if type(changes.get("start_step")) is not int:
            raise ConfigError(
                f"phases.{name}.start_step is {changes.get('start_step')!r}; it must be a step"
            )
        if not all(isinstance(changes.get(part, {}), Mapping) for part in ("data", "objectives")):
            raise ConfigError(f"phases.{name}: data and objectives must be sections of keys")
    phases = [Phase(0, config)]
    order = sorted(config.phases.items(), key=lambda item: item[1]["start_step"])
    for name, changes in order:
        path, before = f"phases.{name}", phases[-1]
        changes = dict(changes)
        start = changes.pop("start_step")
        if not before.start < start < config.train.steps:
            raise ConfigError(
                f"{path}.start_step is {start!r}; it must be a step after {before.start}, where "
                f"the phase before starts, and before train.steps={config.train.steps}"
            )
        if set(changes) - {"data", "objectives"} or set(changes.get("data", {})) - {"alpha"}:
            raise ConfigError(f"{path} may change data.alpha and objectives.* only, not {changes}")
        tree = fields.merge(fields.as_tree(before.config), changes, path)
        phases.append(Phase(start, build(tree)))
        if phases[-1].config == before.config:
            raise ConfigError(f"{path} changes nothing of the phase before it")
    return tuple(phases)


def default(objective_modules: str = "") -> ml_collections.ConfigDict:
    """A ConfigDict with every key of the schema at its default, locked against other keys but the
    old names of keys (`renamed`).

    Args:
      objective_modules: modules that register objectives of your own, separated by commas; their
        keys are then there too.

    Raises:
      ConfigError: if one cannot be imported.
    """
    import_modules(objective_modules)
    config = renamed.accept(fields.default_of(Config))
    config.objective_modules = objective_modules
    return config


def keys() -> Iterator[tuple[str, dataclasses.Field]]:
    """(full path, field) of every key of the schema, in order."""
    return fields.keys_of(Config)


def build(tree: Mapping) -> Config:
    """The `Config` of nested dicts; its types are checked, what its values mean together is not;
    raises a `ConfigError` on an unknown key, a wrong type or a value out of its range."""
    return fields.build(Config, tree)


def record(config: Config) -> ConfigTree:
    """The config as runs and checkpoints keep it: JSON values, and the sha256 of the modules that
    its objectives come from."""
    tree = json.loads(json.dumps(fields.as_tree(config)))
    digests = module_digests(config.objective_modules)
    return tree | ({"objective_digests": digests} if digests else {})
