"""The text of a config, checked: every input file is read once before any work."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlj.config import ConfigError, Data
from xlj.data.text.cleaning import CLEANING
from xlj.data.text.scans import Scan, scan_all
from xlj.data.text.text_tasks import TextTask, text_tasks

Size = list[list[int]]
"""Sentences and characters in each column of a task."""


@dataclasses.dataclass(frozen=True)
class CheckedText:
    """The text of a config.

    Attributes:
      tasks: of each language, then of each pair.
      content: whatever decides the text and its held-out lines, as JSON values: no paths or times.
      sizes: by the name of the task, where all of it is files; other sources are not read yet.
    """

    tasks: tuple[TextTask, ...]
    content: dict[str, Any] = dataclasses.field(repr=False)
    sizes: dict[str, Size] = dataclasses.field(repr=False)


def check_text(data: Data) -> CheckedText:
    """Reads and checks every input file; later starts look at size and time only.

    Neither TensorFlow nor seqio is imported.

    Raises:
      ConfigError: if anything is missing, empty or malformed; it names the file and the line.
    """
    tasks = tuple(text_tasks(data))
    cache = Path(data.cache).expanduser()
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"data.cache={data.cache} cannot be made: {error}") from error
    inputs = [item for task in tasks for source in task.sources for item in source.inputs()]
    scans = scan_all(inputs, cache / "inputs.json")
    sizes = {}
    for task in tasks:
        found = [[(path, scans[path, columns]) for path, columns in source.inputs()]
                 for source in task.sources]  # fmt: skip
        for parts in found:
            _check_scans(parts, task.invalid_utf8)
        if all(found):
            counts = [[(scan.sentences, scan.characters) for _, scan in parts] for parts in found]
            sizes[task.name] = np.sum([np.hstack(columns) for columns in counts], axis=0).tolist()
            refuse_empty(task, sizes[task.name])
    content = {
        "cleaning": CLEANING,
        "held_out_lines": data.held_out_lines,
        "tasks": {
            task.name: {
                "languages": list(task.languages),
                "inputs": [source.identity(scans) for source in task.sources],
            }
            for task in tasks
        },
    }
    return CheckedText(tasks, content, sizes)


def refuse_empty(task: TextTask, size: Size) -> None:
    """Raises a `ConfigError` if a task has no sentence."""
    if not sum(size[0]):
        where = ", ".join(source.text for source in task.sources)
        raise ConfigError(f"{task.name} is empty: no line of text in {where}")


def _check_scans(parts: Sequence[tuple[Path, Scan]], invalid_utf8: str) -> None:
    for path, scan in parts:
        if scan.first_invalid and invalid_utf8 == "error":
            raise ConfigError(
                f"{path}: line {scan.first_invalid} is not UTF-8 ({scan.invalid} such lines); mend "
                "the file, or set data.invalid_utf8=skip"
            )
        if scan.odd_line:
            raise ConfigError(
                f"{path}: line {scan.odd_line} has {scan.odd_tabs} tabs; a line must be two "
                "sentences with one tab between them"
            )
    if len(parts) == 2 and parts[0][1].lines != parts[1][1].lines:
        (first, left), (second, right) = parts
        end, shorter = min((left.lines, first), (right.lines, second))
        raise ConfigError(
            f"{first} has {left.lines} lines but {second} has {right.lines}; line-aligned files "
            f"have as many ({shorter} ends after line {end})"
        )
