"""The typed schema that every config is checked against.

A config file returns an `ml_collections.ConfigDict` that starts from `default()`, so every key can
be set in the file or on the command line. `xlj.config.checks` turns it once into the frozen
`Config` below.
"""

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import ml_collections

from xlj.config import durations, fields, renamed
from xlj.config.batch_warmup import BatchWarmup
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

    name: str
    """Its name in `Config.phases`; empty for the first."""
    start: int
    """Its first step."""
    end: int
    """The first step after it."""
    config: "Config"
    """The whole config in it; of a later one without phases."""
    rates_start: int
    """The step at which the learning rate's schedule began that holds in it."""
    rates_end: int
    """The step at which that schedule ends."""

    def active(self) -> Mapping[str, Options]:
        """The options of the objectives that are on, by name."""
        return self.config.objectives.active()

    @property
    def parts(self) -> int:
        """Microbatches of a whole batch."""
        return self.config.train.accumulation

    def done(self, step: int) -> float:
        """How many of its steps are before `step`; one of a smaller batch counts as its share."""
        steps = max(0, min(step, self.end) - self.start)
        if self.start or not (warmup := self.config.batch_warmup):
            return steps
        return warmup.before(steps) / warmup.parts


RATES_KEYS = ("schedule", "warmup_steps", "decay_steps", "decay", "floor")
"""Keys of `optimizer`: a phase that sets any of them begins the learning rate's schedule again."""

_CHANGEABLE = {
    "data": ("alpha", "sampled", "length"),
    "model": ("rotary_base", "rotary_local_base"),
    "optimizer": ("learning_rate", "weight_decay", *RATES_KEYS),
    "train": ("accumulation",),
}
"""Keys that a phase may change, by section; and all of `objectives`."""


@dataclasses.dataclass(frozen=True)
class Config(Section):
    """All that a run reads. `phases` maps a name to {start_step, and the keys that change from that
    step on}; each phase builds on the one before."""

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

    def phase_at(self, step: int) -> Phase:
        """The phase that a step is in; beyond the last step it is the last."""
        return next(phase for phase in reversed(self.schedule) if phase.start <= step)

    def has_same_step_as(self, other: "Config") -> bool:
        """Whether the train step of a phase with this config is that of a phase with another: they
        differ in what is an argument of the step, or in what rows are drawn."""
        parts = [
            (config.objectives, config.model, config.train.accumulation, config.data.length)
            for config in (self, other)
        ]
        return parts[0] == parts[1]

    @property
    def batch_warmup(self) -> BatchWarmup | None:
        """How batches grow at the beginning of the run, if they do."""
        train = self.train
        if not train.batch_warmup:
            return None
        return BatchWarmup(train.batch_warmup, train.first_microbatches, train.accumulation)

    def microbatches(self, step: int) -> int:
        """How many microbatches a step has rows in: all, but in the batch warm-up."""
        phase = self.phase_at(step)
        if phase.start or not self.batch_warmup:
            return phase.parts
        return self.batch_warmup.size(step)

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

    def row_lengths(self) -> dict[str, tuple[int, ...]]:
        """The lengths of rows of each of these kinds, in the order of the phases that read them; 0
        is one that the text decides."""
        found: dict[str, dict[int, None]] = {kind: {} for kind in self.row_kinds()}
        for phase in self.schedule:
            for options in phase.config.objectives.active().values():
                length = fields.lookup(phase.config, ROW_KINDS[options.rows].length)
                found[options.rows][length] = None
        return {kind: tuple(lengths) for kind, lengths in found.items()}

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
    order = _ordered(config)
    configs, starts, restarts = [config], [0], [0]
    for name, changes in order:
        path, before = f"phases.{name}", configs[-1]
        changes = dict(changes)
        start: Any = durations.value(changes.pop("start_step"))  # a text until it is resolved
        numbers = [n for n in (starts[-1], start, config.train.steps) if isinstance(n, int)]
        if any(after <= before for before, after in itertools.pairwise(numbers)):
            raise ConfigError(
                f"{path}.start_step is {start!r}; it must be a step after {starts[-1]}, where "
                f"the phase before starts, and before train.steps={config.train.steps}"
            )
        _check_changeable(path, changes)
        alone = dataclasses.replace(before, phases={})
        configs.append(build(fields.merge(fields.as_tree(alone), changes, path)))
        if configs[-1] == alone and not _restarts(changes):
            raise ConfigError(f"{path} changes nothing of the phase before it")
        starts.append(start)
        restarts.append(start if _restarts(changes) else restarts[-1])
    ends = [*starts[1:], config.train.steps]
    bounds = [*dict.fromkeys(restarts), config.train.steps]
    return tuple(
        Phase(name, start, end, phase, begin, bounds[bounds.index(begin) + 1])
        for name, start, end, phase, begin in zip(
            ["", *(name for name, _ in order)], starts, ends, configs, restarts, strict=True
        )
    )


def _ordered(config: Config) -> list[tuple[str, ConfigTree]]:
    """(name, changes) of the phases, in order of their starts, which are all in steps or all in the
    same unit until they are resolved (`xlj.training.durations`)."""
    starts = {}
    for name, changes in config.phases.items():
        start = fields.duration(changes.get("start_step"), f"phases.{name}.start_step")
        starts[name] = durations.read(start)
    units = sorted({durations.UNITS[start.unit] for start in starts.values()})
    if len(units) > 1:
        raise ConfigError(f"phases.*.start_step are in {' and '.join(units)}; take one unit")
    return sorted(config.phases.items(), key=lambda item: starts[item[0]].amount)


def _restarts(changes: Mapping) -> bool:
    """Whether a phase with these changes begins the learning rate's schedule again."""
    return any(name in changes.get("optimizer", {}) for name in RATES_KEYS)


def _check_changeable(path: str, changes: Mapping) -> None:
    """Refuses what a phase may not change."""
    for section, values in changes.items():
        if section != "objectives" and section not in _CHANGEABLE:
            raise ConfigError(f"{path}.{section}: a phase may change {_may_change()}")
        if not isinstance(values, Mapping):
            raise ConfigError(f"{path}.{section} must be a section of keys, not {values!r}")
        for name in values if section in _CHANGEABLE else ():
            if name not in _CHANGEABLE[section]:
                raise ConfigError(f"{path}.{section}.{name}: a phase may change {_may_change()}")


def _may_change() -> str:
    keys = [f"{section}.{name}" for section, names in _CHANGEABLE.items() for name in names]
    return f"{', '.join(keys)} and objectives.* only"


def unresolved(config: Config) -> dict[str, str]:
    """The durations of a config that rows are yet to turn into steps, by full path."""
    names = {path for path, field in keys() if field.metadata.get("duration")}
    found = {}
    for path, value in fields.flat(fields.as_tree(config)).items():
        _, is_of_phase, rest = path.partition("phases.")
        key = rest.partition(".")[2] if is_of_phase else path
        if isinstance(value, str) and key in (*names, "start_step" * bool(is_of_phase)):
            found[path] = value
    return found


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
    config = renamed.accept_old_keys(fields.default_of(Config))
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
