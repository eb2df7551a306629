"""Provides the rows of a config: opens rows that `data.rows` names, or builds rows from text."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any

from xlj.config import Config, ConfigError, row_kinds
from xlj.config.checks import check_languages, check_phases
from xlj.data.rows.building import build_rows, embed_text, measure_pairs
from xlj.data.rows.draws import sampling_rates
from xlj.data.rows.lengths import auto_length
from xlj.data.rows.request import RowsRequest, request_of
from xlj.data.rows.store import RowStore, RowStoreError, TaskRows
from xlj.data.rows.vectors import Embed
from xlj.data.text import seqio_tasks
from xlj.data.text.seqio_tasks import seqio_name
from xlj.data.text.text_tasks import describe_unused_files
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import storage
from xlj.io.processes import in_child
from xlj.io.quiet import import_quietly


def open_rows(config: Config) -> tuple[Config, RowStore | None]:
    """Opens the rows that `data.rows` names.

    Returns:
      The config, with the languages, pairs, lengths and vocabulary of the rows; and the rows, with
      only the kinds that the objectives read. If `data.rows` is empty, the unchanged config and
      None.

    Raises:
      ConfigError: if the rows are not suitable for the config; the message names the folder and the
        config key.
    """
    if not config.data.rows:
        return config, None
    store = _open_fitting(config)
    tasks = store.manifest.tasks
    values: dict[str, Any] = {
        kind.length.removeprefix("data."): task.length
        for kind in map(row_kinds.load, config.row_kinds())
        for task in reversed(store.tasks(kind.name))  # the first has the length of the first phase
    }
    values["languages"], values["pairs"] = _names_of(tasks, sides=1), _names_of(tasks, sides=2)
    values["vocabulary"] = str(store.vocabulary_file)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, **values))
    check_languages(config)
    names = [row_kinds.load(kind).name for kind in config.row_kinds()]
    return config, RowStore(store.path, names)


def prepare_rows(
    config: Config,
    runner: str = "",
    arguments: Sequence[str] = (),
    processes: int = 1,
    vocabulary: Vocabulary | None = None,
    teach: Callable[[str], Embed] | None = None,
) -> RowStore:
    """Returns the row store of a config.

    If the config sets `data.rows`, opens these rows. Otherwise opens the rows in `data.cache`. If
    rows are missing, first builds them from text, in a child process (`processes.in_child`).
    Before, the teachers of the config embed their text in this process, which has the devices.

    Args:
      config: the config.
      runner: an Apache Beam runner that builds the rows; empty for processes of this machine.
      arguments: options of the Beam pipeline, such as `--region=...`.
      processes: the number of processes that call this function. If it is more than 1, no process
        builds rows.
      vocabulary: the vocabulary of `data.vocabulary`, if it is already loaded.
      teach: loads the teacher of a kind of rows (`RowKind.teacher`). None if the caller cannot; the
        teacher's vectors must then exist.

    Raises:
      ConfigError: if the config or its text is invalid, if the rows of `data.rows` are damaged or
        do not fit the config, or if `processes` is more than 1 and the rows are not built.
      RuntimeError: if the child process fails.
    """
    if (opened := open_rows(config)[1]) is not None:
        return opened
    config = with_pair_length(config, runner, arguments, processes, vocabulary)
    request = request_of(config, vocabulary)
    if (store := _open_finished(request)) is not None:
        return store
    _refuse_several_processes(config, processes)
    for description in describe_unused_files(config.data, request.tasks):
        print(description, file=sys.stderr)
    embed_text(request, teach or _no_teacher)
    return RowStore(in_child("building rows", build_rows, request, runner, tuple(arguments)))


def _no_teacher(kind: str) -> Embed:
    raise ConfigError(
        "the rows need a teacher's vectors, which are not computed yet; run python -m xlj.prepare "
        "with this config"
    )


def with_pair_length(
    config: Config,
    runner: str = "",
    arguments: Sequence[str] = (),
    processes: int = 1,
    vocabulary: Vocabulary | None = None,
) -> Config:
    """Replaces `data.pair_length=auto` with a number of tokens.

    The number is the smallest multiple of 8 such that 99 % of the sentence pairs of each language
    pair fit in rows of this length. It is at least 16, and at most `model.positions` - 2. To
    determine it, reads some sentence pairs, and trains a vocabulary if the config names none. The
    results are stored in `data.cache`.

    Returns the config unchanged if it sets another `data.pair_length` or `data.rows`, or if no
    objective reads pairs.

    Args:
      config: the config.
      runner: an Apache Beam runner that reads the pairs; empty for processes of this machine.
      arguments: options of the Beam pipeline.
      processes: the number of processes that call this function. If it is more than 1, no process
        reads pairs.
      vocabulary: the vocabulary of `data.vocabulary`, if it is already loaded.

    Raises:
      ConfigError: if the config or its text is invalid, or if `processes` is more than 1 and the
        length is not yet stored.
    """
    length_keys = {row_kinds.load(kind).length for kind in config.row_kinds()}
    if config.data.rows or config.data.pair_length or "data.pair_length" not in length_keys:
        return config
    request = request_of(config, vocabulary)
    if not request.lengths_file.is_file():
        _refuse_several_processes(config, processes)
        in_child("measuring pairs", measure_pairs, request, runner, tuple(arguments))
    length = auto_length(request, config.model.positions - 2)
    data = dataclasses.replace(config.data, pair_length=length)
    config = dataclasses.replace(config, data=data)
    check_phases(config)
    return config


def register_seqio(config: Config) -> list[str]:
    """Registers the text of a config as seqio Tasks.

    If the rows of the config are already built, also registers a Mixture for each kind of rows,
    such as `xlj.text`, with the sampling rates of training. Replaces Tasks and Mixtures of the same
    names.

    Returns:
      The names of the Tasks, then of the Mixtures.

    Raises:
      ConfigError: if the text or the vocabulary is invalid.
    """
    request = request_of(with_pair_length(config))
    names = []
    for task in request.tasks:
        of_kinds = [task.of_kind(row_kinds.load(kind)) for kind in request.row_kinds(task)]
        for of_kind in {of_kind.name: of_kind for of_kind in (task, *of_kinds)}.values():
            seqio_tasks.register_task(of_kind, config.data)
            names.append(seqio_name(of_kind.name))
    store = _open_finished(request)
    if store is None:
        return names
    seqio = import_quietly("seqio")
    for kind in dict.fromkeys(task.kind for task in store.manifest.tasks):
        tokens = {rows.name: rows.train.tokens for rows in store.tasks(kind)}
        # Rows of a second length (`text@8192.en`) have no Task.
        if tokens := {name: n for name, n in tokens.items() if name.startswith(f"{kind}.")}:
            name = f"xlj.{kind}"
            if name in seqio.MixtureRegistry.names():
                seqio.MixtureRegistry.remove(name)
            shares = sampling_rates(tokens, config.data.alpha)
            seqio.MixtureRegistry.add(name, [(seqio_name(t), p) for t, p in shares.items()])
            names.append(name)
    return names


def _open_finished(request: RowsRequest) -> RowStore | None:
    """Opens the row store of a request; returns None if the store is not completely built."""
    try:
        return RowStore(request.folder)
    except RowStoreError as error:
        if request.is_finished:
            print(f"{error}\nbuilding the missing rows", file=sys.stderr)
        return None


def _refuse_several_processes(config: Config, processes: int) -> None:
    if processes > 1:
        raise ConfigError(
            f"several processes train, but data.cache={config.data.cache} has no finished rows of "
            "this config; build them once with python -m xlj.prepare and the same config, in a "
            "folder that every host can read"
        )


def _open_fitting(config: Config) -> RowStore:
    """Opens the rows of `data.rows`, and checks that they are suitable for the config."""
    data, max_length = config.data, config.model.positions - 2
    try:
        store = RowStore(storage.to_path(data.rows_folder))
    except (RowStoreError, OSError) as error:
        raise ConfigError(f"data.rows={data.rows}: {error}") from error
    kinds = ", ".join(dict.fromkeys(task.kind for task in store.manifest.tasks))
    for name, options in config.objectives_on().items():
        kind = options.rows_name
        tasks = store.tasks(kind)
        if not tasks:
            raise ConfigError(
                f"data.rows={data.rows} has rows of kind {kinds}, but none of kind {kind}, which "
                f"objectives.{name} reads; prepare rows with this config (python -m xlj.prepare)"
            )
        teacher = options.row_kind.teacher
        if teacher is not None and (width := tasks[0].fields[-1].shape[-1]) != teacher.width:
            raise ConfigError(
                f"data.rows={data.rows} has vectors of a teacher with {width} dimensions, but "
                f"those of the model have {teacher.width}; set objectives.{name}.dense={width}, "
                "which adds a linear layer"
            )
        if (longest := max(task.length for task in tasks)) > max_length:
            raise ConfigError(
                f"data.rows={data.rows} has {kind} rows of {longest} tokens, but "
                f"model.positions={config.model.positions} allows {max_length}; prepare shorter "
                "rows, or raise model.positions"
            )
    lengths = {task.length for task in store.manifest.tasks}
    for name, changes in config.phases.items():
        if changes.get("data", {}).get("length", 0) not in (0, *lengths):
            raise ConfigError(
                f"data.rows={data.rows} has no rows with phases.{name}.data.length="
                f"{changes['data']['length']}; prepare rows with this config (python -m "
                "xlj.prepare)"
            )
    if data.vocabulary:
        if Vocabulary.load(data.vocabulary).digest != store.manifest.vocabulary_digest:
            raise ConfigError(
                f"data.rows={data.rows} was built with another vocabulary than data.vocabulary="
                f"{data.vocabulary}; leave data.vocabulary empty to use the vocabulary of the rows"
            )
    return store


def _names_of(tasks: tuple[TaskRows, ...], sides: int) -> tuple[str, ...]:
    """Returns the distinct languages (one side) or pairs (two sides) of the rows, in order."""
    with_sides = (task for task in tasks if len(set(task.languages)) == sides)
    return tuple(
        dict.fromkeys(
            task.languages[0] if sides == 1 else task.name.partition(".")[2] for task in with_sides
        )
    )
