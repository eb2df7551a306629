"""Typed schema of pretraining configs.

A config file returns an `ml_collections.ConfigDict` that starts from `default()`, so every key can
be set in the file or on the command line. `xlj.config.checks` converts it to the frozen `Config`
below.
"""

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import ml_collections

from xlj.config import durations, fields, row_kinds
from xlj.config.batch_sizes import BatchSizes
from xlj.config.data_section import Data
from xlj.config.fields import ConfigError, ConfigTree, Section, key
from xlj.config.objectives import (
    Options,
    import_modules,
    module_digests,
    registered,
    shared_sections,
)
from xlj.config.sections import Evaluation, Mesh, Model, Optimizer, Train, Transfer
from xlj.config.task import Task


@dataclasses.dataclass(frozen=True)
class Objectives(Section, path="objectives"):
    """The objectives of a run or of a phase."""

    normalisation: str = key(
        "per_objective",
        "how the losses of objectives are combined. per_objective: the mean loss over the "
        "predictions of each objective, weighted and added up (ELECTRA, XLM-E); global: the summed "
        "loss of each objective, weighted and added up, divided by the number of predictions of "
        "all objectives (XLM-Align)",
        choices=("per_objective", "global"),
    )
    shared: Mapping[str, Section] = fields.sections(shared_sections)
    """The sections that several objectives share, such as `masking`, by name."""
    options: Mapping[str, Options] = fields.sections(registered)
    """The options of each objective by name, in order of registration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        options = {}
        for name, each in self.options.items():
            values: dict[str, Any] = {name: self.shared[name] for name in fields.shared_in(each)}
            options[name] = dataclasses.replace(each, **values)
        object.__setattr__(self, "options", options)

    def active(self) -> dict[str, Options]:
        """Returns the options of the objectives that are on, by name."""
        return {name: options for name, options in self.options.items() if options.batch_size}

    def __getattr__(self, name: str) -> Any:
        for sections in ("shared", "options"):
            if name in self.__dict__.get(sections, ()):
                return self.__dict__[sections][name]
        raise AttributeError(f"there is no objective {name}")


class Phase(NamedTuple):
    """A phase of a run."""

    name: str
    """The name in `Config.phases`; empty for the first phase."""
    start: int
    """The first step."""
    end: int
    """The first step after the phase."""
    config: "Config"
    """The whole config during the phase. Its `phases` is empty, except in the first phase."""
    rates_start: int
    """The step at which the learning rate schedule of this phase began."""
    rates_end: int
    """The step at which the learning rate schedule of this phase ends."""

    def active(self) -> Mapping[str, Options]:
        """Returns the options of the objectives that are on, by name."""
        return self.config.objectives.active()

    @property
    def accumulation_steps(self) -> int:
        """The number of microbatches in a full batch."""
        return self.config.train.gradient_accumulation_steps

    @property
    def batch_sizes(self) -> BatchSizes:
        """The number of microbatches of each step of this phase, counted from its first step."""
        return BatchSizes.of_phase(self.config.train, self.start)

    def microbatches(self, step: int) -> int:
        """Returns the number of microbatches of a step of this phase."""
        return self.batch_sizes.size(step - self.start)

    def done(self, step: int) -> float:
        """Returns the number of steps of this phase before `step`. A step of the batch warm-up
        counts as its microbatches divided by the microbatches of a full batch."""
        steps = max(0, min(step, self.end) - self.start)
        return self.batch_sizes.before(steps) / self.accumulation_steps


RATES_KEYS = ("schedule", "warmup_steps", "decay_steps", "decay", "floor")
"""Keys of `optimizer`. A phase that sets any of these keys restarts the learning rate schedule."""

_CHANGEABLE = {
    "data": ("alpha", "sampled", "length"),
    "model": ("rotary_base", "rotary_local_base"),
    "optimizer": ("learning_rate", "weight_decay", *RATES_KEYS),
    "train": ("gradient_accumulation_steps",),
}
"""Keys that a phase may change, by section. A phase may also change every key of `objectives`."""


@dataclasses.dataclass(frozen=True)
class Config(Section):
    """The config of a run: of pretraining, or of fine-tuning if `task.kind` is set.

    `phases` maps the name of each phase to its `start_step` and to the keys that change at that
    step. Each phase inherits the other keys from the phase before it.
    """

    init_from: str = key(
        "",
        "workdir, checkpoint, Hugging Face folder or hf://OWNER/NAME with the initial parameters "
        "of the run",
    )
    objective_modules: tuple[str, ...] = key(
        (),
        "Python modules to import that register your own objectives (docs/own_objective.md), "
        "optimizers (docs/train.md) or families (docs/models.md)",
    )
    transfer: Transfer = Transfer()
    data: Data = Data()
    model: Model = Model()
    objectives: Objectives = dataclasses.field(default_factory=Objectives)
    optimizer: Optimizer = Optimizer()
    train: Train = Train()
    evaluation: Evaluation = Evaluation()
    task: Task = Task()
    mesh: Mesh = Mesh()
    phases: Mapping[str, ConfigTree] = dataclasses.field(
        default_factory=dict,
        metadata={
            "doc": "changes of the config that apply from a step on (docs/phases.md): "
            "{name: {start_step: N, data: {alpha: A}, ...}}"
        },
    )

    @functools.cached_property
    def schedule(self) -> tuple[Phase, ...]:
        """The phases of the run in order of steps; the first starts at step 0.

        Raises:
          ConfigError: if a phase changes nothing or a key that it may not change, or starts at the
            same step as another phase.
        """
        return _schedule(self)

    def phase_at(self, step: int) -> Phase:
        """Returns the phase of a step; the last phase for steps beyond the end."""
        return next(phase for phase in reversed(self.schedule) if phase.start <= step)

    def has_same_step_as(self, other: "Config") -> bool:
        """Whether a phase with this config and a phase with `other` can use the same compiled train
        step. They may differ in arguments of the step, such as rates, and in the choice of rows."""
        read_by_step = [
            (
                config.objectives,
                config.model,
                config.train.gradient_accumulation_steps,
                config.data.length,
            )
            for config in (self, other)
        ]
        return read_by_step[0] == read_by_step[1]

    @functools.cached_property
    def objectives_by_phase(self) -> tuple[Mapping[str, Options], ...]:
        """For each phase, the options of the objectives that are on, by name."""
        return tuple(phase.config.objectives.active() for phase in self.schedule)

    def options_by_phase(self) -> list[tuple[str, Options]]:
        """Returns (name, options) of the objectives that are on in each phase, phase by phase."""
        return [item for active in self.objectives_by_phase for item in active.items()]

    def objectives_on(self) -> dict[str, Options]:
        """Returns the objectives that are on in any phase, in the schema's order, each with the
        options of the first phase in which it is on."""
        first: dict[str, Options] = {}
        for active in reversed(self.objectives_by_phase):
            first |= active
        return {name: first[name] for name in self.objectives.options if name in first}

    def names_a_model(self) -> bool:
        """Whether `init_from` or an objective, such as distillation from a teacher, names a stored
        model."""
        objectives = self.objectives_on().values()
        return bool(self.init_from) or any(options.models() for options in objectives)

    def trains_on_pairs(self) -> bool:
        """Whether an objective that is on in any phase reads pairs that are encoded together."""
        return any(options.rows == "pairs" for options in self.objectives_on().values())

    def row_kinds(self) -> tuple[str, ...]:
        """Returns the kinds of rows that the run reads, xlj's first."""
        read = dict.fromkeys(options.rows for options in self.objectives_on().values())
        kinds = [*row_kinds.KINDS, *(kind for kind in read if kind not in row_kinds.KINDS)]
        return tuple(kind for kind in kinds if kind in read)

    def row_sources(self) -> tuple[str, ...]:
        """Returns the keys of the text from which the run's rows are packed."""
        return tuple(dict.fromkeys(row_kinds.load(kind).source for kind in self.row_kinds()))

    def row_lengths(self) -> dict[str, tuple[int, ...]]:
        """Returns the row lengths of each kind in `row_kinds`, in the order of the phases that read
        rows of this length. 0 means `auto`: the length is determined from the text."""
        by_kind: dict[str, dict[int, None]] = {kind: {} for kind in self.row_kinds()}
        for phase in self.schedule:
            for options in phase.config.objectives.active().values():
                length = fields.lookup(phase.config, options.row_kind.length)
                by_kind[options.rows][length] = None
        return {kind: tuple(lengths) for kind, lengths in by_kind.items()}

    def readers(self, path: str) -> list[str]:
        """Returns the objectives, on or off, that read this key of the model."""
        return [name for name, options in self.objectives.options.items() if path in options.reads]

    def for_platform(self, platform: str, has_bfloat16: bool = True) -> "Config":
        """Returns the config with `model.dtype=auto` resolved for "cpu", "gpu" or "tpu".

        `auto` is float32 on CPUs and on devices without bfloat16, and bfloat16 elsewhere. xlj
        computes float32 products exactly on all platforms. On GPUs, exact products are slow for two
        reasons: XLA tries dozens of kernels for each product before the first step, and tensor
        cores must compute each product in parts, which takes many times as long as a bfloat16
        product.
        """
        if self.model.dtype != "auto":
            return self
        dtype = "bfloat16" if platform != "cpu" and has_bfloat16 else "float32"
        return dataclasses.replace(self, model=dataclasses.replace(self.model, dtype=dtype))


def _schedule(config: Config) -> tuple[Phase, ...]:
    order = _ordered(config)
    configs, starts, restarts = [config], [0], [0]
    for name, changes in order:
        path, before = f"phases.{name}", configs[-1]
        changes = dict(changes)
        start: Any = durations.value(changes.pop("start_step"))  # a string until it is resolved
        numbers = [n for n in (starts[-1], start, config.train.steps) if isinstance(n, int)]
        if any(after <= before for before, after in itertools.pairwise(numbers)):
            raise ConfigError(
                f"{path}.start_step is {start!r}; it must be a step after {starts[-1]}, where the "
                f"previous phase starts, and before train.steps={config.train.steps}"
            )
        _check_changeable(path, changes)
        unchanged = dataclasses.replace(before, phases={})
        configs.append(build(fields.merge(fields.as_tree(unchanged), changes, path)))
        if configs[-1] == unchanged and not _restarts(changes):
            raise ConfigError(f"{path} changes nothing in the previous phase; remove it")
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
    """Returns (name, changes) of the phases in order of their starts.

    All starts must have the same unit until `xlj.training.duration_steps` has converted them to
    steps.
    """
    starts = {}
    for name, changes in config.phases.items():
        start = fields.duration(
            changes.get("start_step"), f"phases.{name}.start_step", ("tok", "ep")
        )
        starts[name] = durations.read(start)
    units = sorted({durations.UNITS[start.unit] for start in starts.values()})
    if len(units) > 1:
        raise ConfigError(
            f"phases.*.start_step are in {' and '.join(units)}; use one unit for all of them"
        )
    return sorted(config.phases.items(), key=lambda item: starts[item[0]].amount)


def _restarts(changes: Mapping) -> bool:
    """Whether a phase with these changes restarts the learning rate schedule."""
    return any(name in changes.get("optimizer", {}) for name in RATES_KEYS)


def _check_changeable(path: str, changes: Mapping) -> None:
    """Refuses changes of keys that a phase may not change."""
    for section, values in changes.items():
        if section != "objectives" and section not in _CHANGEABLE:
            raise ConfigError(f"{path}.{section}: a phase may change only {_may_change()}")
        if not isinstance(values, Mapping):
            raise ConfigError(f"{path}.{section} must be a section of keys, not {values!r}")
        for name in values if section in _CHANGEABLE else ():
            if name not in _CHANGEABLE[section]:
                raise ConfigError(
                    f"{path}.{section}.{name}: a phase may change only {_may_change()}"
                )


def _may_change() -> str:
    keys = [f"{section}.{name}" for section, names in _CHANGEABLE.items() for name in names]
    return f"{', '.join(keys)} and objectives.*"


def unresolved(config: Config) -> dict[str, str]:
    """Returns the durations of a config that are not yet converted to steps, by full path."""
    names = {path for path, field in keys() if field.metadata.get("duration")}
    durations_by_path = {}
    for path, value in fields.flat(fields.as_tree(config)).items():
        _, is_of_phase, rest = path.partition("phases.")
        key = rest.partition(".")[2] if is_of_phase else path
        if isinstance(value, str) and key in (*names, "start_step" * bool(is_of_phase)):
            durations_by_path[path] = value
    return durations_by_path


def default(objective_modules: str = "") -> ml_collections.ConfigDict:
    """Returns a ConfigDict with every key of the schema at its default.

    Setting an unknown key is an error.

    Args:
      objective_modules: modules that register your own objectives, separated by commas. The
        ConfigDict then has the keys of these objectives too.

    Raises:
      ConfigError: if a module cannot be imported.
    """
    import_modules(objective_modules)
    config = fields.default_of(Config)
    config.objective_modules = objective_modules
    return config


def keys() -> Iterator[tuple[str, dataclasses.Field]]:
    """Yields (full path, field) of every key of the schema, in order."""
    return fields.keys_of(Config)


def build(tree: Mapping) -> Config:
    """Builds a `Config` from nested dicts. Checks each value, but not combinations of values.

    Raises:
      ConfigError: if a key is unknown, or a value has a wrong type or is out of range.
    """
    return fields.build(Config, tree)


def record(config: Config) -> ConfigTree:
    """Returns the config in the form that runs and checkpoints store: JSON values, and the sha256
    of each module in `objective_modules`."""
    tree = json.loads(json.dumps(fields.as_tree(config)))
    digests = module_digests(config.objective_modules)
    return tree | ({"objective_digests": digests} if digests else {})
