"""Describes how text became rows, as a table with warnings, from the manifest of a row store."""

import math
from collections import Counter
from collections.abc import Collection, Sequence

from xlj.config import ConfigError, Data
from xlj.data.rows import findings
from xlj.data.rows.draws import BLOCK, draws_of_tasks
from xlj.data.rows.findings import printed, text_of
from xlj.data.rows.store import RowStore, TaskRows
from xlj.io import atomic
from xlj.io.storage import AnyPath

_HEADER = ("source", "read", "held out", "dropped", "share", "rows", "full", "drawn")
_MOST = 24  # sources that are printed; a file has all
FILE = "sources.txt"
"""A file in the folder of a row store: the whole report of more than 24 sources."""


def report(store: RowStore, data: Data) -> str:
    """Describes a row store: a table of its sources, then notes and warnings.

    A source is a language or pair, as rows of one kind. The table has one line for each source,
    with these columns:

    - `read`: how many lines or pairs were read; `held out`, `dropped`: how many of them were held
      out and dropped.
    - `share`: the share that was dropped.
    - `rows`: number of training rows; `full`: share of the tokens of these rows that are not
      padding.
    - `drawn`: share of the draws of this kind of rows that training takes from the source.

    The reasons for dropped lines follow, by kind of rows, then notes and warnings (`findings`). A
    warning proposes a remedy, such as a config key to change.

    A report of more than 24 sources has the 24 sources of which the largest share was dropped, and
    one line for each group of notes and warnings. This function writes all into the file `FILE` of
    the store. If it cannot write the file, the report has all sources.

    Args:
      store: the row store.
      data: the section `data` of the config, whose sampling rates determine `drawn`.
    """
    tasks, drawn = [], []
    for kind in _kinds(store):
        for length in _lengths(store, kind):
            of_kind = [task for task in store.tasks(kind) if task.length == length]
            draws = draws_of_tasks(of_kind, data)
            tasks += of_kind
            drawn += [draws.get(task.name, 0) / BLOCK for task in of_kind]
    rows = [_table_row(*each) for each in zip(tasks, drawn, strict=True)]
    head, about, found = _head(store, data), _dropped(store), findings.find(store)
    file, notes = None, [*about, *findings.lines(found)]
    if len(tasks) > _MOST:
        reasons = [[*row, _reasons([task])] for row, task in zip(rows, tasks, strict=True)]
        file = _write(store, [*head, *_table([*_HEADER, "reasons"], reasons), *notes])
    if file:
        worst = sorted((_badness(task), place) for place, task in enumerate(tasks))[:_MOST]
        rows = [rows[place] for _, place in worst]
        head += [f"{len(rows)} of {len(tasks):,} sources, worst first; {file} has all:", ""]
        notes = [*about, *findings.joined_lines(found)]
    lines = [*head, *_table(_HEADER, rows)]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _badness(task: TaskRows) -> tuple[bool, float, int]:
    """Returns a key that sorts sources: the largest share of dropped lines first, then the fewest
    rows. Sources without rows are last, since a note names them."""
    text = text_of(task)
    share = sum(text.dropped.values()) / max(1, text.sentences)
    return not task.train.rows, -share, task.train.rows


def _head(store: RowStore, data: Data) -> list[str]:
    """Returns the lines before the table."""
    manifest = store.manifest
    lengths = {task.name.partition(".")[0]: task.length for task in manifest.tasks}
    shown = ", ".join(f"{kind} {length}" for kind, length in lengths.items())
    tokens = sum(task.train.tokens for task in manifest.tasks)
    return [
        f"rows: {store.path}",
        f"vocabulary: {manifest.vocabulary_size:,} ids, sha256 {manifest.vocabulary_digest[:16]}",
        f"tokens per row: {shown}; for training: {tokens:,} tokens, alpha = {data.alpha:g}",
        "",
    ]


def _dropped(store: RowStore) -> list[str]:
    """Returns a line for each kind of rows with dropped lines."""
    dropped = {kind: _reasons(store.tasks(kind)) for kind in _kinds(store)}
    return [f"dropped from {kind}: {reasons}" for kind, reasons in dropped.items() if reasons]


def _write(store: RowStore, lines: Sequence[str]) -> AnyPath | None:
    """Writes `FILE` into the folder of the store, and returns its path; None if this user cannot
    write there."""
    file = store.path / FILE
    try:
        atomic.write(file, ("\n".join(lines) + "\n").encode())
    except (OSError, ConfigError):
        return None
    return file


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = align_columns([head, *rows], left=(0, len(_HEADER)))
    return [line.rstrip() for line in lines]


def _reasons(tasks: Sequence[TaskRows]) -> str:
    """Describes the dropped lines of some sources: by reason, their number."""
    counts: Counter[str] = Counter()
    for task in tasks:
        counts.update(text_of(task).dropped)
    return ", ".join(f"{count:,} {printed(why)}" for why, count in counts.most_common())


def _kinds(store: RowStore) -> list[str]:
    """Returns the kinds of rows, in order."""
    return list(dict.fromkeys(task.kind for task in store.manifest.tasks))


def _lengths(store: RowStore, kind: str) -> list[int]:
    """Returns the distinct lengths of rows of a kind, in order."""
    return list(dict.fromkeys(task.length for task in store.tasks(kind)))


def _table_row(task: TaskRows, drawn: float) -> list[str]:
    text, rows = text_of(task), task.train.rows
    dropped = sum(text.dropped.values())
    room = sum(math.prod(field.shape) for field in task.fields if field.is_text)  # of a row
    counts = text.sentences, task.held_out.sentences, dropped
    return [
        task.name,
        *(f"{count:,}" for count in counts),
        _percent(dropped / max(1, text.sentences)),
        f"{rows:,}",
        _percent(task.train.tokens / max(1, rows * room)),
        _percent(drawn),
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def align_columns(table: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Formats a table as lines of text.

    Args:
      table: the cells of each row.
      left: zero-based indices of the columns that are aligned to the left; all other columns are
        aligned to the right.
    """
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]
