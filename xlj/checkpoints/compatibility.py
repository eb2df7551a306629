"""Compares checkpoints with the config of a run: refuses those that differ and names the
differences, and finds the steps whose checkpoints are never deleted.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, NoReturn

from xlj.checkpoints.reading import Checkpoint, CheckpointError
from xlj.checkpoints.stored_models import StoredModel
from xlj.checkpoints.writing import row_digests
from xlj.config import Config, Model, as_tree, batch_sizes, record, registered
from xlj.config.fields import ConfigTree, Value, flat, merge
from xlj.config.objectives import objectives_in
from xlj.config.schema import RATES_KEYS
from xlj.data.rows.request import RowsRequest
from xlj.data.rows.store import Manifest, file_bytes


def check_resumable(latest: Checkpoint, config: Config) -> None:
    """Refuses to resume from a checkpoint whose config differs from the run's config.

    Raises:
      CheckpointError: with the differences, and the flags that allow them or start a new run. Also
        if the checkpoint is beyond the last step, or if `train.steps` was raised or lowered after
        the final decay of the learning rate had begun.
    """
    if differences := config_differences(latest, config):
        _refuse(latest, [(str(each), each.allowed_by) for each in differences])
    if latest.step > config.train.steps:
        raise CheckpointError(
            f"{latest.folder} is beyond the last step, train.steps={config.train.steps}; raise "
            "train.steps to resume"
        )
    before = decay_start(latest.config())
    planned = latest.config()["train"]["steps"]
    if before is not None and before < latest.step < config.train.steps != planned:
        raise CheckpointError(
            f"{latest.folder} is in the decay of the learning rate, which began at step {before} "
            f"of a run with {planned} steps; to train for train.steps={config.train.steps}, copy "
            f"{latest.folder.parent / str(before)} to ANOTHER_WORKDIR/checkpoints/ and resume in "
            "ANOTHER_WORKDIR"
        )


def check_text(latest: Checkpoint, request: RowsRequest, config: Config) -> None:
    """Refuses to resume with other languages, other text or other options of rows, before any text
    is read.

    `check_rows` later compares the rows, so text at another path may have the same content. If the
    files have the same sizes as before, or if `train.allow_change` contains the key of the text,
    this function allows another path.

    Args:
      request: the rows that the config requests.

    Raises:
      CheckpointError: with the differences, and the flags that allow them or start a new run.
    """
    old, new = merge(record(Config()), latest.config(), ""), record(config)
    problems = [(text, "") for text in _length_differences(latest, request)]
    keys = _TEXT_KEYS
    if request.vocabulary is not None:
        if request.vocabulary.digest != latest.meta["vocabulary"]:
            problems.append((_OTHER_VOCABULARY, ""))
    elif not old["data"]["vocabulary"]:
        keys += tuple(name for name in new["data"] if name.startswith("vocabulary_"))
    before, now = latest.meta.get("text", {}), file_bytes(request.listing(request.tasks))
    for source in dict.fromkeys(task.source for task in request.tasks):
        names = [task.name for task in request.tasks if task.source == source]
        if not all(name in before and name in now for name in names):
            keys += (source.removeprefix("data."),)
        elif changed := [name for name in names if before[name] != now[name]]:
            shown = [f"{name} {before[name]:,} -> {now[name]:,}" for name in changed[:_SHOWN]]
            more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
            problems.append((f"bytes of text in {source}: {', '.join(shown)}{more}", source))
    for name in keys:
        for each in _find_differences(f"data.{name}", old["data"][name], new["data"][name]):
            problems.append((str(each), each.key))
    allowed = config.train.allow_change
    if refused := [(text, key) for text, key in problems if key not in allowed]:
        _refuse(latest, refused)


def _length_differences(latest: Checkpoint, request: RowsRequest) -> list[str]:
    """Returns a message for each language or pair that is new, removed, or has other lengths."""
    before = {name: int(text.partition(":")[0]) for name, text in latest.meta["rows"].items()}
    now = request.row_lengths
    messages = []
    for name in sorted(before.keys() | now.keys()):
        if name not in before or name not in now:
            messages.append(f"rows of {name}: {'removed' if name in before else 'new'}")
        elif now[name] not in (0, before[name]):  # 0 is not known before the text is read
            messages.append(f"rows of {name}: {before[name]} -> {now[name]} tokens")
    return messages


def _refuse(latest: Checkpoint, problems: Sequence[tuple[str, str]]) -> NoReturn:
    """Raises the error about differences, each with the key that allows it; empty for none."""
    texts, keys = ([*dict.fromkeys(column)] for column in zip(*problems, strict=True))
    allow = f"To resume with these differences, add --config.train.allow_change={','.join(keys)}. "
    raise CheckpointError(
        f"{latest.folder} was written by another run: {'; '.join(texts)}. "
        f"{allow if all(keys) else ''}{_start_from(latest)}"
    )


def check_rows(latest: Checkpoint, manifest: Manifest) -> None:
    """Refuses to resume from a checkpoint that was trained on different rows.

    Raises:
      CheckpointError: with the differences, and the flags that start a new run.
    """
    if differences := row_differences(latest, manifest):
        raise CheckpointError(
            f"{latest.folder} was written by another run: {'; '.join(differences)}. "
            f"{_start_from(latest)}, and --config.transfer.optimizer=True to keep the "
            "optimizer's moments"
        )


def check_model(source: StoredModel, config: Config, key: str = "") -> None:
    """Refuses to start from a model that computes something else than the config's model.

    Args:
      key: `KEY=` for a teacher, where KEY is the config key that names the model; empty for
        `init_from`. A teacher is not trained, so its rotary positions must also equal the
        config's.

    Raises:
      CheckpointError: with the differences, and the flags that set the config to the model's
        values.
    """
    free = _FREE_IN_NEW_RUNS if key else _FREE_AT_START
    if differences := model_differences(source.model, config.model, free):
        own = model_differences(source.model, config.model, _FREE_IN_NEW_RUNS)
        raise CheckpointError(
            f"{key}{source.folder} contains a model that differs from the config: "
            f"{'; '.join(map(str, differences))}. To set the config to the values of this model, "
            f"add {' '.join(d.flag_of_old for d in own)}"
        )


def _start_from(checkpoint: Checkpoint) -> str:
    return (
        "To start a new run from these parameters, use another --workdir with "
        f"--config.init_from={checkpoint.folder}"
    )


_OTHER_VOCABULARY = "another vocabulary"
_SHOWN = 3
"""How many languages or pairs an error names whose files have other sizes."""
_TEXT_KEYS: tuple[str, ...] = (
    *("seqio_modules", "exclude", "filter", "duplicates", "held_out_share", "unit_bytes"),
    *("malformed", "min_score", "other_language"),
)
"""Keys of `data` that determine the text of rows, besides the sources."""


class Difference(NamedTuple):
    """A config key whose value changed. As text it is `KEY: OLD -> NEW`."""

    key: str
    old: ConfigTree | Value | None
    new: ConfigTree | Value | None

    def __str__(self) -> str:
        return f"{self.key}: {self.old!r} -> {self.new!r}"

    @property
    def flag_of_old(self) -> str:
        """The flag that sets the key to its old value."""
        values = ",".join(map(str, self.old)) if isinstance(self.old, tuple) else self.old
        return f"--config.{self.key}={values}"

    @property
    def allowed_by(self) -> str:
        """The key that `train.allow_change` must contain to allow the difference.

        Empty if the difference cannot be allowed, because parameters or states would not fit or
        would have another meaning.
        """
        section, _, name = self.key.partition(".")
        if section == "phases":
            return section
        part = name.partition(".")[0]  # an objective, or a section that objectives share
        if section == "model":
            fits = name in _FREE
        elif section == "objectives":
            options = registered().values()
            fits = not any(part in each.state_keys for each in options)
        else:
            fits = self.key not in (_ALL_OBJECTIVES, "optimizer.name", "optimizer.average")
        return self.key if fits else ""


_ALL_OBJECTIVES = "objectives of all phases"


_FIXED_KEYS = (
    *("init_from", "transfer", "train.seed", "data.alpha", "data.sampled"),
    *("objectives", "optimizer"),
)
"""Keys and sections that determine batches, masks and updates. `model`, `phases` and the batch
sizes do too; they are compared separately."""


def config_differences(checkpoint: Checkpoint, config: Config) -> list[Difference]:
    """Returns the differences that prevent resuming, except those that `train.allow_change` allows.

    It compares the model and the keys that determine batches, masks and updates. (`reading.restore`
    compares the tensors.) A key that did not exist when the checkpoint was written counts as its
    current default. Objectives that are off in both configs are not compared.
    """
    differences = model_differences(checkpoint.first_model(), config.model, _FREE_ON_RESUME)
    # Configs of fine-tuning contain one objective only; all others get defaults on both sides.
    old, new = (merge(record(Config()), tree, "") for tree in (checkpoint.config(), record(config)))
    on = objectives_in(old) | objectives_in(new)
    grow = config.schedule[0].batch_sizes.grow
    for path in (*_FIXED_KEYS, *batch_sizes.KEYS[: None if grow else 1], "phases"):
        before, now = old, new
        for name in path.split("."):
            before, now = before[name], now[name]
        if path == "objectives":
            off = set(registered()) - on
            before, now = ({n: tree[n] for n in tree if n not in off} for tree in (before, now))
        if path == "phases":  # a phase that has not begun may still change
            before, now = (
                {n: p for n, p in phases.items() if p["start_step"] < checkpoint.step}
                for phases in (before, now)
            )
        differences += _find_differences(path, before, now)
    for module, digest in new.get("objective_digests", {}).items():
        if old.get("objective_digests", {}).get(module) != digest:
            differences.append(
                Difference("objective_modules", f"the recorded code of {module}", "other code")
            )
    # The states of all phases are created when the run starts, so objectives cannot be added later.
    differences += _find_differences(
        _ALL_OBJECTIVES, *(", ".join(sorted(objectives_in(tree))) for tree in (old, new))
    )
    allowed = config.train.allow_change
    return [difference for difference in differences if difference.allowed_by not in allowed]


def changes(checkpoint: Checkpoint, config: Config) -> list[str]:
    """Returns a line `KEY was OLD, is now NEW` for each key that differs from a checkpoint's
    config.

    Keys that did not exist when the checkpoint was written are left out.
    """
    old, new = flat(checkpoint.config()), flat(record(config))
    return [
        f"{path} was {old[path]!r}, is now {value!r}"
        for path, value in new.items()
        if path in old and old[path] != value and path not in _RESUME_KEYS
    ]


_RESUME_KEYS = ("train.allow_change", "train.damaged_checkpoint")
"""Keys that affect only how a run resumes."""


def row_differences(checkpoint: Checkpoint, manifest: Manifest) -> list[str]:
    """Returns a message for each task whose rows differ from the rows of a checkpoint."""
    before, now = checkpoint.meta["rows"], row_digests(manifest)
    differences = []
    if checkpoint.meta["vocabulary"] != manifest.vocabulary_digest:
        differences.append(_OTHER_VOCABULARY)
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            how = "removed" if name not in now else "new" if name not in before else "changed"
            differences.append(f"rows of {name}: {how}")
    return differences


_FREE_ON_RESUME = ("family", "attention", "scan_layers", "remat", "init_std")
"""Keys of `model` that do not change the results of a step, except by the order of sums."""

_FREE = (*_FREE_ON_RESUME, "dropout", "dropout_parts", "attention_dropout", "dtype")
"""`_FREE_ON_RESUME`, and keys that do not change the results of inference with equal
parameters."""

_FREE_IN_NEW_RUNS = (*_FREE, "language_embeddings", "middle_norm", "separator", "task_head",
                     "task_pooling")  # fmt: skip
"""`_FREE`, and options that a new run may set differently, whatever parameters it loads: language
embeddings, the norm that alignment and retrieval apply to earlier layers, the separator of pairs (a
value in `pair_marks`), and the heads of fine-tuning tasks."""

_ROTARY = ("rotary_base", "rotary_local_base", "rotary_factor")
_ROTARY_KEYS = tuple(f"model.{name}" for name in _ROTARY)

_FREE_AT_START = (*_FREE_IN_NEW_RUNS, *_ROTARY)
"""`_FREE_IN_NEW_RUNS`, and the keys of rotary positions. A new run may change them if it trains the
loaded parameters further. ModernBERT and mmBERT started training on longer contexts with a larger
rotary base."""


def model_differences(old: Model, new: Model, free: tuple[str, ...] = _FREE) -> list[Difference]:
    """Returns the differences between two models, without the keys and pair marks in `free`."""

    def compared(model: Model) -> dict[str, Value]:
        options = {k: v for k, v in dataclasses.asdict(model).items() if k not in free}
        return options | {"pair_marks": tuple(m for m in model.pair_marks if m not in free)}

    return _find_differences("model", compared(old), compared(new))


def rotary_changes(source: StoredModel, config: Config) -> list[Difference]:
    """Returns the differences between a run's rotary positions and those of its `init_from`."""
    differences = model_differences(source.model, config.model, _FREE_IN_NEW_RUNS)
    return [difference for difference in differences if difference.key in _ROTARY_KEYS]


def _find_differences(
    path: str, before: ConfigTree | Value | None, now: ConfigTree | Value | None
) -> list[Difference]:
    if isinstance(before, dict) and isinstance(now, dict):
        names = sorted(before.keys() | now.keys())
        return [
            d for n in names for d in _find_differences(f"{path}.{n}", before.get(n), now.get(n))
        ]
    return [] if before == now else [Difference(path, before, now)]


def decay_start(config: ConfigTree) -> int | None:
    """Returns the step at which the final decay of a run's learning rate begins.

    This is the decay of the schedule `wsd`, or of a phase whose learning rate falls from the start
    of the phase.

    Args:
      config: a config as nested dicts.

    Returns:
      The step, or None if the run has no such decay.
    """
    return dict((end, start) for start, end in _decays(config)).get(config["train"]["steps"])


def pre_decay_steps(config: Config, earlier: Iterable[Checkpoint]) -> tuple[int, ...]:
    """Returns the steps at which decays begin, in a run's config and in the configs of earlier
    checkpoints."""
    configs = [*(checkpoint.config() for checkpoint in earlier), as_tree(config)]
    return tuple(sorted({start for each in configs for start, _ in _decays(each)}))


def _decays(config: ConfigTree) -> Iterator[tuple[int, int]]:
    """Yields (first step, step after the last step) of each decay.

    Args:
      config: a config as nested dicts.
    """
    options, begin, spans = config["optimizer"], 0, []
    phases = sorted(config["phases"].values(), key=lambda phase: phase["start_step"])
    for phase in phases:
        changes = phase.get("optimizer", {})
        if any(name in changes for name in RATES_KEYS):
            spans.append((begin, phase["start_step"], options))
            begin = phase["start_step"]
        options = {**options, **changes}
    spans.append((begin, config["train"]["steps"], options))
    for start, end, span_options in spans:
        if span_options["schedule"] == "wsd":
            yield end - span_options["decay_steps"], end
        elif start and span_options["schedule"] != "constant":
            yield start, end
