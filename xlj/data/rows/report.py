"""Describes how text became rows, as a table with warnings, from the manifest of a row store."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from xlj.config import Data
from xlj.data.rows import packing
from xlj.data.rows.draws import BLOCK, draws_of_tasks
from xlj.data.rows.store import RowStore, TaskRows, TextCounts
from xlj.data.text import held_out
from xlj.io import atomic
from xlj.io.json_file import Record

_HEADER = ("source", "read", "held out", "dropped", "share", "rows", "full", "drawn")
_WARN_ABOVE = 0.1  # share of the lines or pairs of a source that are dropped or truncated
_MOST = 24  # sources, notes and warnings that are printed; a file has all
FILE = "sources.txt"
"""A file in the folder of a row store: the whole report of more than 24 sources."""
_TARGET_SHARE = 0.95  # share of the pairs that fit in the length that a warning proposes
_ADVICE = {
    "data.filter": "data.filter drops them",
    "in data.exclude": "they are in the files of data.exclude",
    "repeated": "data.duplicates=keep keeps them",
}
"""What to do about dropped lines or pairs, by the reason as it is printed."""
_PRINTED = {
    "stands in data.exclude": "in data.exclude",
    "stands before": "repeated",
    "no JSON": "invalid JSON",
    "field that is no text": "field is not a string",
}
"""The printed form of some reasons in row stores; other reasons are printed unchanged."""


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

    The reasons for dropped lines follow, by kind of rows. A warning follows if more than 10 % of
    the lines or pairs of a source were dropped or truncated. It proposes a remedy, such as a config
    key to change.

    A report of more than 24 sources has the 24 sources with the most rows, and this function writes
    all into the file `FILE` of the store. If it cannot write the file, the report has all sources.

    Args:
      store: the row store.
      data: the section `data` of the config, whose sampling rates determine `drawn`.
    """
    tasks, drawn, warnings = [], [], []
    for kind in _kinds(store):
        for length in _lengths(store, kind):
            of_kind = [task for task in store.tasks(kind) if task.length == length]
            draws = draws_of_tasks(of_kind, data)
            tasks += of_kind
            drawn += [draws.get(task.name, 0) / BLOCK for task in of_kind]
            warnings += [w for task in of_kind for w in _warnings(task, store.manifest.recipe)]
    rows = [_table_row(*each) for each in zip(tasks, drawn, strict=True)]
    head, notes = _head(store, data), _notes(store)
    file = None
    if len(tasks) > _MOST:
        reasons = [[*row, _reasons([task])] for row, task in zip(rows, tasks, strict=True)]
        file = _write(store, [*head, *_table([*_HEADER, "reasons"], reasons), *notes, *warnings])
    if file:
        largest = sorted(range(len(tasks)), key=lambda place: -tasks[place].train.rows)[:_MOST]
        rows = [rows[place] for place in sorted(largest)]
        head += [f"The {_MOST} largest of {len(tasks):,} sources; {file} has all:", ""]
        notes, warnings = (_shortened(lines, file) for lines in (notes, warnings))
    lines = [*head, *_table(_HEADER, rows)]
    return "\n".join([*lines, *([""] if notes or warnings else []), *notes, *warnings])


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


def _notes(store: RowStore) -> list[str]:
    """Returns a line for each kind of rows with dropped lines, each source with malformed records,
    and each language without held-out rows."""
    manifest = store.manifest
    dropped = {kind: _reasons(store.tasks(kind)) for kind in _kinds(store)}
    notes = [f"dropped from {kind}: {reasons}" for kind, reasons in dropped.items() if reasons]
    notes += [f"{t.name}: {malformed_records([t])}" for t in manifest.tasks if _text(t).malformed]
    if not manifest.recipe["held_out_share"]:
        return notes
    with_held_out = {name for t in manifest.tasks if t.held_out.rows for name in t.languages}
    languages = dict.fromkeys(name for t in manifest.tasks for name in t.languages)
    return notes + [
        f"{name} has no held-out rows: the text is too short for "
        f"data.held_out_share={manifest.recipe['held_out_share']:g}"
        for name in languages
        if name not in with_held_out
    ]


def _write(store: RowStore, lines: Sequence[str]) -> Path | None:
    """Writes `FILE` into the folder of the store, and returns its path; None if this user cannot
    write there, or the store is in a bucket."""
    if not isinstance(store.path, Path):
        return None
    file = store.path / FILE
    try:
        atomic.write(file, ("\n".join(lines) + "\n").encode())
    except OSError:
        return None
    return file


def _shortened(lines: list[str], file: Path) -> list[str]:
    rest = len(lines) - _MOST
    return [*lines[:_MOST], f"... {rest:,} more are in {file}"] if rest > 0 else lines


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = align_columns([head, *rows], left=(0, len(_HEADER)))
    return [line.rstrip() for line in lines]


def _reasons(tasks: Sequence[TaskRows]) -> str:
    """Describes the dropped lines of some sources: by reason, their number."""
    counts: Counter[str] = Counter()
    for task in tasks:
        counts.update(_text(task).dropped)
    return ", ".join(f"{count:,} {_PRINTED.get(why, why)}" for why, count in counts.most_common())


def _kinds(store: RowStore) -> list[str]:
    """Returns the kinds of rows, in order."""
    return list(dict.fromkeys(task.kind for task in store.manifest.tasks))


def _lengths(store: RowStore, kind: str) -> list[int]:
    """Returns the distinct lengths of rows of a kind, in order."""
    return list(dict.fromkeys(task.length for task in store.tasks(kind)))


def _text(task: TaskRows) -> TextCounts:
    assert task.text is not None, f"{task.name} has labelled rows"
    return task.text


def _table_row(task: TaskRows, drawn: float) -> list[str]:
    text, rows = _text(task), task.train.rows
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


def _warnings(task: TaskRows, recipe: Record) -> list[str]:
    """Describes losses of a source that exceed `_WARN_ABOVE`, and proposes a remedy for each."""
    warnings, name, text = [], task.name.partition(".")[2], _text(task)
    if sum(text.dropped.values()) > _WARN_ABOVE * text.sentences:
        why, count = max(text.dropped.items(), key=lambda item: item[1])
        reason = _PRINTED.get(why, why)
        advice = _ADVICE.get(reason, "check these lines of the text")
        if reason == "too long":
            fitting = task.train.sentences + task.held_out.sentences
            length = packing.shortest_length(text.too_long, _TARGET_SHARE, fitting)
            advice = "raise data.pair_length, or set it to auto"
            if length:
                advice = (
                    f"{100 * _TARGET_SHARE:.0f} % of {name} fit in data.pair_length={length}, and "
                    "data.pair_length=auto keeps 99 %"
                )
        elif reason == held_out.REASON:
            share = float(f"{recipe['held_out_share'] * _WARN_ABOVE * text.sentences / count:.1g}")
            advice = f"data.held_out_share={share:g} holds out fewer"
        warnings.append(
            f"warning: {task.name}: {count:,} of {text.sentences:,} dropped ({reason}); {advice}"
        )
    sentences = task.train.sentences + task.held_out.sentences
    if task.kind == "sentences" and text.cut > _WARN_ABOVE * sentences:
        warnings.append(
            f"warning: {task.name}: {text.cut:,} of {sentences:,} sentences are truncated; raise "
            f"data.length, which is {task.length}"
        )
    return warnings


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def malformed_records(tasks: Sequence[TaskRows]) -> str:
    """Describes the malformed records of tasks: by reason, their number and the first place.

    Text that is packed into several kinds of rows counts once. The result is empty if there are no
    malformed records.
    """
    texts = {(_text(task).input_sha256, task.languages): _text(task) for task in reversed(tasks)}
    totals: dict[str, tuple[int, str]] = {}
    for text in reversed(texts.values()):
        for why, (count, first) in text.malformed.items():
            total, first_of_all = totals.get(why, (0, first))
            totals[why] = (total + count, first_of_all)
    reasons = [
        f"{_PRINTED.get(why, why)}: {count:,} (first: {first})"
        for why, (count, first) in totals.items()
    ]
    return f"malformed, dropped: {'; '.join(reasons)}" if reasons else ""


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
