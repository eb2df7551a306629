"""The typed schema that every config is checked against.

A config file returns an `ml_collections.ConfigDict` that starts from `default()`, so every key can
be set in the file or on the command line. `parse` turns it once into the frozen `Config` below and
refuses whatever a run would not read: unknown keys, wrong types, impossible values, dead keys.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import ml_collections


class ConfigError(ValueError):
    """A config, or what it names, cannot be used. The message says which key and what to do."""


def key(
    default: Any,
    doc: str,
    *,
    choices: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
    read_when: tuple[str, tuple[str, ...]] | None = None,
) -> Any:
    """A config key: its default, one line of documentation, and what values are possible.

    Args:
      choices: the values allowed, for strings.
      low, high: inclusive bounds, for numbers.
      read_when: (full key path, its values) without which nothing reads this key.
    """
    metadata = {"doc": doc, "choices": choices, "low": low, "high": high, "read_when": read_when}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Data:
    languages: tuple[str, ...] = key((), "languages of the monolingual text, e.g. en,de,sw")
    mono: tuple[str, ...] = key(
        (),
        "templates of monolingual sources with {language}: files (.txt .gz .xz .zst), "
        "phrasebook:{language}, tfds:NAME#FIELD or seqio:TASK#FIELD",
    )
    pairs: tuple[str, ...] = key((), "language pairs of the parallel text, e.g. en-de,en-sw")
    parallel: tuple[str, ...] = key(
        (),
        "templates of parallel sources with {pair}, or {source} and {target}: TSV files, two "
        "line-aligned files joined by '|', phrasebook:{pair}, tfds:NAME#FIELD|FIELD, "
        "seqio:TASK#FIELD|FIELD",
    )
    seqio_modules: tuple[str, ...] = key((), "modules to import that register seqio Tasks")
    cache: str = key("runs/rows", "folder where vocabularies and rows live, one folder a recipe")
    alpha: float = key(0.7, "exponent of language sampling, p_j = m_j^a / sum m_k^a", low=0, high=1)
    vocabulary: str = key("", "SentencePiece model in XLM-R's layout; empty means train one")
    vocabulary_size: int = key(
        250_002, "ids of a vocabulary that is trained, specials and <mask> included", low=64
    )
    vocabulary_alpha: float = key(
        0.3, "exponent of the sample that the vocabulary is trained on", low=0, high=1
    )
    vocabulary_lines: int = key(5_000_000, "most lines that the vocabulary is trained on", low=1000)
    vocabulary_coverage: float = key(
        0.9995, "share of characters that the vocabulary covers", low=0.9, high=1
    )
    length: int = key(512, "tokens in a row of monolingual text", low=8)
    pair_length: int = key(512, "tokens in a row of sentence pairs", low=8)
    held_out_lines: int = key(
        1000, "lines of each language, about, held out of training for evaluation", low=0
    )
    invalid_utf8: str = key(
        "error",
        "what a line that is not UTF-8 does: stop, or be skipped and counted",
        choices=("error", "skip"),
    )
    workers: int = key(0, "processes that make rows; 0 means one a core", low=0)


@dataclasses.dataclass(frozen=True)
class Model:
    layers: int = key(12, "transformer layers", low=1)
    hidden: int = key(768, "width of the hidden vectors", low=1)
    heads: int = key(12, "attention heads", low=1)
    intermediate: int = key(3072, "width inside the feed-forward layers", low=1)
    positions: int = key(514, "rows of the position table; XLM-R's first position is row 2", low=3)
    absolute_positions: bool = key(
        True, "add a learned vector for each position; if not, positions only limits the rows"
    )
    position_bias: str = key(
        "none",
        "what attention adds for the distance of two tokens: nothing, a learned number a head "
        "(T5), or that gated by the query (XLM-E)",
        choices=("none", "t5", "gated"),
    )
    position_buckets: int = key(
        32,
        "buckets of distances, half of them for each direction",
        low=4,
        read_when=("model.position_bias", ("t5", "gated")),
    )
    position_distance: int = key(
        128,
        "distance from which on all share a bucket",
        low=2,
        read_when=("model.position_bias", ("t5", "gated")),
    )
    dropout: float = key(
        0.1, "dropout of embeddings and of every sub-layer's output", low=0, high=0.9
    )
    attention_dropout: float = key(0.1, "dropout of attention probabilities", low=0, high=0.9)
    layer_norm_epsilon: float = key(1e-5, "epsilon of every LayerNorm", low=0)
    init_std: float = key(0.02, "standard deviation of initial weights", low=0)
    dtype: str = key(
        "float32",
        "type that matrix products compute in; parameters and reductions are float32",
        choices=("float32", "bfloat16"),
    )
    scan_layers: bool = key(True, "compile one layer and loop, or all of them unrolled")
    remat: bool = key(False, "recompute each layer in the backward pass, to save memory")


@dataclasses.dataclass(frozen=True)
class MaskedLanguageModelling:
    batch_rows: int = key(0, "rows a step; 0 turns the objective off", low=0)
    weight: float = key(1.0, "weight of the objective in the loss", low=0)
    mask_rate: float = key(0.15, "share of tokens to predict", low=0, high=0.9)
    mask_share: float = key(0.8, "share of predicted tokens replaced by <mask>", low=0, high=1)
    random_share: float = key(
        0.1, "share of predicted tokens replaced by a random one", low=0, high=1
    )


ROW_KINDS = {"mmlm": "text", "tlm": "pairs"}
"""The kind of rows that each objective reads: monolingual text, or sentence pairs."""


@dataclasses.dataclass(frozen=True)
class Objectives:
    normalisation: str = key(
        "per_objective",
        "per_objective: sum of weight * mean of each (ELECTRA, XLM-E); "
        "global: weighted sums over everything predicted (XLM-Align)",
        choices=("per_objective", "global"),
    )
    mmlm: MaskedLanguageModelling = MaskedLanguageModelling()
    tlm: MaskedLanguageModelling = MaskedLanguageModelling()

    def active(self) -> dict[str, MaskedLanguageModelling]:
        """The options of the objectives that are on, by name."""
        options = {name: getattr(self, name) for name in ROW_KINDS}
        return {name: option for name, option in options.items() if option.batch_rows}


@dataclasses.dataclass(frozen=True)
class Optimizer:
    learning_rate: float = key(1e-4, "peak learning rate of AdamW", low=0)
    schedule: str = key(
        "linear",
        "after the warm-up: linear decay to 0, constant, or wsd (constant, then linear decay to 0 "
        "over decay_steps; the checkpoint before the decay is kept)",
        choices=("linear", "constant", "wsd"),
    )
    warmup_steps: int = key(0, "steps of linear warm-up", low=0)
    decay_steps: int = key(
        0, "steps of the final decay", low=0, read_when=("optimizer.schedule", ("wsd",))
    )
    b1: float = key(0.9, "AdamW's beta 1", low=0, high=1)
    b2: float = key(0.999, "AdamW's beta 2", low=0, high=1)
    epsilon: float = key(1e-6, "AdamW's epsilon", low=0)
    weight_decay: float = key(0.01, "decoupled decay; never of biases and norms", low=0)
    clip_norm: float = key(0.0, "largest global norm of the gradient; 0 means no clipping", low=0)


@dataclasses.dataclass(frozen=True)
class Train:
    steps: int = key(100_000, "optimizer steps of the run", low=1)
    seed: int = key(0, "seed of initial weights, batches, masks and dropout", low=0, high=2**32 - 1)
    log_every: int = key(100, "steps between lines of training metrics", low=1)
    eval_every: int = key(5_000, "steps between evaluations on held-out text", low=1)
    eval_rows: int = key(64, "most held-out rows of each language or pair in an evaluation", low=0)
    checkpoint_every: int = key(5_000, "steps between checkpoints", low=1)
    keep_checkpoints: int = key(2, "latest checkpoints to keep (a pre-decay one stays too)", low=1)
    accumulation: int = key(1, "microbatches that a step's rows are split into", low=1)
    max_skipped_steps: int = key(
        20, "steps in a row with a non-finite loss or gradient before the run stops", low=0
    )


@dataclasses.dataclass(frozen=True)
class Mesh:
    replica: int = key(
        0, "devices along which the parameters are copied; 0 means all / mesh.fsdp", low=0
    )
    fsdp: int = key(1, "devices along which the parameters are sharded", low=1)


@dataclasses.dataclass(frozen=True)
class Config:
    """All that a run reads. `phases` maps a name to {start_step, and the keys of `data.alpha` and
    `objectives.*` that change from that step on}; each phase builds on the one before."""

    init_from: str = key("", "checkpoint, or workdir, whose parameters the run starts from")
    data: Data = Data()
    model: Model = Model()
    objectives: Objectives = Objectives()
    optimizer: Optimizer = Optimizer()
    train: Train = Train()
    mesh: Mesh = Mesh()
    phases: Mapping[str, Any] = dataclasses.field(
        default_factory=dict,
        metadata={"doc": "changes by step: {name: {start_step: N, data: {alpha: A}, ...}}"},
    )


def default() -> ml_collections.ConfigDict:
    """A ConfigDict with every key of the schema at its default, locked against other keys."""
    return _default_of(Config)


def parse(config: ml_collections.ConfigDict) -> Config:
    """The frozen `Config` of a ConfigDict.

    Raises:
      ConfigError: on an unknown key (the nearest valid one is offered), a wrong type, an impossible
        value, a key that nothing would read, or keys that contradict each other.
    """
    parsed = _build(Config, config.to_dict(), "")
    _check_read(parsed)
    _check_together(parsed)
    for _, phase in phase_configs(parsed):
        _check_together(phase)
    return parsed


def phase_configs(config: Config) -> list[tuple[int, Config]]:
    """The phases of a run: (first step, the whole config from then on), in order of steps.

    Raises:
      ConfigError: on a phase that changes what a phase may not, or that starts where another does.
    """
    phases = [(0, config)]
    for name, changes in config.phases.items():
        if type(changes.get("start_step")) is not int:
            raise ConfigError(
                f"phases.{name}.start_step is {changes.get('start_step')!r}; it must be a step"
            )
        if not all(isinstance(changes.get(part, {}), Mapping) for part in ("data", "objectives")):
            raise ConfigError(f"phases.{name}: data and objectives must be sections of keys")
    order = sorted(config.phases.items(), key=lambda item: item[1]["start_step"])
    for name, changes in order:
        path = f"phases.{name}"
        changes = dict(changes)
        start = changes.pop("start_step")
        if not phases[-1][0] < start < config.train.steps:
            raise ConfigError(
                f"{path}.start_step is {start!r}; it must be a step after {phases[-1][0]}, where "
                f"the phase before starts, and before train.steps={config.train.steps}"
            )
        if set(changes) - {"data", "objectives"} or set(changes.get("data", {})) - {"alpha"}:
            raise ConfigError(f"{path} may change data.alpha and objectives.* only, not {changes}")
        tree = dataclasses.asdict(phases[-1][1])
        phases.append((start, _build(Config, _merge(tree, changes, path), "")))
    return phases


def objectives_in(config: Config) -> tuple[str, ...]:
    """Names of the objectives that are on in any phase, in the schema's order."""
    phases = [phase.objectives.active() for _, phase in phase_configs(config)]
    return tuple(name for name in ROW_KINDS if any(name in active for active in phases))


def keys() -> Iterator[tuple[str, dataclasses.Field]]:
    """(full path, field) of every key of the schema, in order."""
    yield from _keys_of(Config, "")


def nearest(path: str) -> str:
    """The rest of an error about an unknown key: what it may have meant."""
    known = [name for name, _ in keys()]
    close = difflib.get_close_matches(path, known, n=1, cutoff=0.6)
    if not close:  # the right name in the wrong section
        close = [name for name in known if name.split(".")[-1] == path.split(".")[-1]]
    return f"; did you mean {close[0]}?" if close else "; docs/configs.md lists all keys"


def _keys_of(schema: type, prefix: str) -> Iterator[tuple[str, dataclasses.Field]]:
    for field in dataclasses.fields(schema):
        if dataclasses.is_dataclass(field.default):
            yield from _keys_of(type(field.default), f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, field


def _default_of(schema: type) -> ml_collections.ConfigDict:
    config = ml_collections.ConfigDict()
    for field in dataclasses.fields(schema):
        value = field.default
        if dataclasses.is_dataclass(value):
            value = _default_of(type(value))
        elif value is dataclasses.MISSING:
            value = ml_collections.ConfigDict()
        elif isinstance(value, tuple):  # a comma list, so that the command line stays readable
            value = ",".join(value)
        config[field.name] = value
    return config.lock()


def _merge(tree: dict, changes: Mapping, path: str) -> dict:
    merged = dict(tree)
    for name, value in changes.items():
        if isinstance(value, Mapping) and isinstance(tree.get(name), Mapping):
            value = _merge(tree[name], value, f"{path}.{name}")
        merged[name] = value
    return merged


def _build(schema: type, tree: Mapping, prefix: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(schema)}
    hints = typing.get_type_hints(schema)
    for name in tree:
        if name not in fields:
            raise ConfigError(f"unknown config key {prefix}{name}{nearest(prefix + name)}")
    values = {}
    for name, field in fields.items():
        if name not in tree:
            continue
        value, path = tree[name], prefix + name
        if dataclasses.is_dataclass(field.default):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{path} is {value!r}; it must be a section of keys")
            values[name] = _build(type(field.default), value, path + ".")
        else:
            values[name] = _value(hints[name], field.metadata, value, path)
    return schema(**values)


def _value(hint: Any, metadata: Mapping, value: Any, path: str) -> Any:
    if typing.get_origin(hint) is tuple:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")] if value.strip() else []
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
            raise ConfigError(f"{path} is {value!r}; it must be names separated by commas")
        if any(not part for part in value) or len(set(value)) < len(value):
            raise ConfigError(f"{path} is {','.join(value)!r}; an entry is empty or stands twice")
        return tuple(value)
    if typing.get_origin(hint) is Mapping or hint is types.MappingProxyType:
        if not all(isinstance(entry, Mapping) for entry in value.values()):
            raise ConfigError(f"{path} must map names to sections of keys, not {value!r}")
        return dict(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(
            f"{path} is {value!r} ({type(value).__name__}); it must be {hint.__name__}"
        )
    if metadata["choices"] and value not in metadata["choices"]:
        close = difflib.get_close_matches(value, metadata["choices"], n=1)
        hint_text = f"; did you mean {close[0]}?" if close else ""
        raise ConfigError(
            f"{path} is {value!r}; it must be one of {', '.join(metadata['choices'])}{hint_text}"
        )
    low, high = metadata["low"], metadata["high"]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if (
            not math.isfinite(value)
            or (low is not None and value < low)
            or (high is not None and value > high)
        ):
            bounds = f"at least {low}" if high is None else f"from {low} to {high}"
            raise ConfigError(f"{path} is {value}; it must be {bounds}")
    return value


def lookup(config: Config, path: str) -> Any:
    """The value of the key with this full path."""
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _check_read(config: Config) -> None:
    """Refuses keys that were set although nothing would read them."""
    phases = [phase for _, phase in phase_configs(config)]
    for path, field in keys():
        if path == "phases" or lookup(config, path) == field.default:
            continue
        condition = field.metadata["read_when"]
        if condition and lookup(config, condition[0]) not in condition[1]:
            raise ConfigError(
                f"{path} is set to {lookup(config, path)!r} but nothing reads it, because "
                f"{condition[0]} is {lookup(config, condition[0])!r}, "
                f"not {' or '.join(condition[1])}"
            )
        section, _, name = path.rpartition(".")
        if section.startswith("objectives.") and name != "batch_rows":
            if not any(lookup(phase, section).batch_rows for phase in phases):
                raise ConfigError(
                    f"{path} is set to {lookup(config, path)!r} but nothing reads it, because "
                    f"{section}.batch_rows is 0"
                )


def _check_together(config: Config) -> None:
    """Refuses values that contradict each other."""
    model, train, optimizer = config.model, config.train, config.optimizer
    if model.hidden % model.heads:
        raise ConfigError(
            f"model.hidden={model.hidden} is not divisible by model.heads={model.heads}"
        )
    if model.position_buckets % 2 or model.position_distance <= model.position_buckets // 4:
        raise ConfigError(
            f"model.position_buckets={model.position_buckets} must be even, and "
            f"model.position_distance={model.position_distance} more than a quarter of it"
        )
    if model.position_bias == "none" and not model.absolute_positions:
        raise ConfigError(
            "model.absolute_positions is off; set model.position_bias to t5 or gated, or the model "
            "does not know the order of tokens"
        )
    kinds = {ROW_KINDS[name] for name in config.objectives.active()}
    for kind, path in (("text", "data.length"), ("pairs", "data.pair_length")):
        if kind in kinds and lookup(config, path) > model.positions - 2:
            raise ConfigError(
                f"{path}={lookup(config, path)} is beyond the model's positions: "
                f"model.positions={model.positions} allows {model.positions - 2} tokens a row"
            )
    if not config.objectives.active():
        raise ConfigError("no objective is on; set objectives.mmlm.batch_rows or another's")
    for name, objective in config.objectives.active().items():
        path = f"objectives.{name}"
        source = {"text": "mono", "pairs": "parallel"}[ROW_KINDS[name]]
        if not getattr(config.data, source):
            raise ConfigError(f"{path} is on, but data.{source} names no {ROW_KINDS[name]} to read")
        if objective.batch_rows % train.accumulation:
            raise ConfigError(
                f"{path}.batch_rows={objective.batch_rows} is not divisible by "
                f"train.accumulation={train.accumulation}"
            )
        if objective.mask_share + objective.random_share > 1:
            raise ConfigError(f"{path}.mask_share and {path}.random_share add up to more than 1")
    if optimizer.decay_steps > train.steps:
        raise ConfigError(
            f"optimizer.decay_steps={optimizer.decay_steps} is more than train.steps={train.steps}"
        )
    if optimizer.schedule == "wsd" and not optimizer.decay_steps:
        raise ConfigError("optimizer.schedule is wsd; set optimizer.decay_steps")
    if config.data.mono and not config.data.languages:
        raise ConfigError("data.mono is set; say which languages with data.languages=en,de,...")
    if config.data.parallel and not config.data.pairs:
        raise ConfigError("data.parallel is set; say which pairs with data.pairs=en-de,...")
