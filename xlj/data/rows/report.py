"""A table of what became of the text, from a store's manifest."""

from collections.abc import Collection, Sequence

from xlj.config import ROW_KINDS
from xlj.data.rows import packing
from xlj.data.rows.draws import BLOCK, draws_per_block, rates
from xlj.data.rows.store import RowStore, TaskRows
from xlj.data.text import held_out
from xlj.io.json_file import Record

_HEADER = ("source", "read", "kept", "held out", "dropped", "share", "rows", "full", "drawn")
_ALARM = 0.05  # of the lines or pairs of a source
_NEAR_ALL = 0.95
_ADVICE = {
    "data.filter": "that is what data.filter leaves out",
    "stands in data.exclude": "the files of data.exclude have them",
    "stands before": "data.duplicates=keep keeps them",
}
"""What to do about lines or pairs that are dropped, by reason."""


def report(store: RowStore, alpha: float) -> str:
    """A table of what became of each source: lines or pairs read, kept to train on, held out and
    dropped (with the reasons), rows, how full they are, and how often they are drawn. Warnings
    follow it where more than 5 % of a source is lost, each with a key.

    A source is a language or pair, as rows of a kind. `drawn` is its share of the draws among rows
    of its kind with this alpha, after rounding to blocks.
    """
    manifest = store.manifest
    table, notes, warnings = [[*_HEADER, "reasons"]], [], []
    for kind, length in ((k, n) for k in ROW_KINDS for n in _lengths(store, k)):
        tasks = [task for task in store.tasks(kind) if task.length == length]
        draws = draws_per_block(rates({task.name: task.train.tokens for task in tasks}, alpha))
        for task in tasks:
            table.append(_row(task, draws[task.name] / BLOCK))
            warnings += _warnings(task, manifest.recipe)
    notes += [f"{t.name}: {malformed_records([t])}" for t in manifest.tasks if t.malformed]
    if manifest.recipe["held_out_share"]:
        held = {name for t in manifest.tasks if t.held_out.rows for name in t.languages}
        every = dict.fromkeys(name for t in manifest.tasks for name in t.languages)
        notes += [
            f"{name} has no held-out rows: too little text" for name in every if name not in held
        ]
    lengths = {task.name.partition(".")[0]: task.length for task in manifest.tasks}
    shown = ", ".join(f"{kind} {length}" for kind, length in lengths.items())
    tokens = sum(task.train.tokens for task in manifest.tasks)
    lines = [
        f"rows: {store.path}",
        f"vocabulary: {manifest.vocabulary_size:,} ids, sha256 {manifest.vocabulary_digest[:16]}",
        f"tokens a row: {shown}; to train on: {tokens:,} tokens, alpha = {alpha:g}",
        "",
        *(line.rstrip() for line in align(table, left=(0, len(_HEADER)))),
    ]
    return "\n".join([*lines, *([""] if notes or warnings else []), *notes, *warnings])


def _lengths(store: RowStore, kind: str) -> list[int]:
    """The lengths of rows of a kind, each once, in order."""
    return list(dict.fromkeys(task.length for task in store.tasks(kind)))


def _row(task: TaskRows, drawn: float) -> list[str]:
    dropped, rows = sum(task.dropped.values()), task.train.rows
    reasons = [f"{count:,} {reason}" for reason, count in task.dropped.items()]
    counts = task.sentences, task.train.sentences, task.held_out.sentences, dropped
    return [
        task.name,
        *(f"{count:,}" for count in counts),
        _percent(dropped / max(1, task.sentences)),
        f"{rows:,}",
        _percent(task.train.tokens / max(1, rows * task.length)),
        _percent(drawn),
        ", ".join(reasons),
    ]


def _warnings(task: TaskRows, recipe: Record) -> list[str]:
    """What of a source is lost beyond `_ALARM`, and the key that changes it."""
    found, name = [], task.name.partition(".")[2]
    if sum(task.dropped.values()) > _ALARM * task.sentences:
        reason, count = max(task.dropped.items(), key=lambda item: item[1])
        advice = _ADVICE.get(reason, "look at these lines of the text")
        if reason == "too long":
            shorter = task.train.sentences + task.held_out.sentences
            length = packing.fitting(task.too_long, _NEAR_ALL, shorter)
            advice = "raise data.pair_length, or set it to auto"
            if length:
                advice = (
                    f"{100 * _NEAR_ALL:.0f} % of {name} fit in data.pair_length={length}, and "
                    "data.pair_length=auto keeps 99 %"
                )
        elif reason == held_out.REASON:
            share = float(f"{recipe['held_out_share'] * _ALARM * task.sentences / count:.1g}")
            advice = f"data.held_out_share={share:g} holds out fewer"
        found.append(
            f"warning: {task.name}: {count:,} of {task.sentences:,} dropped ({reason}); {advice}"
        )
    sentences = task.train.sentences + task.held_out.sentences
    if task.kind == "sentences" and task.cut > _ALARM * sentences:
        found.append(
            f"warning: {task.name}: {task.cut:,} of {sentences:,} sentences lose their end; raise "
            f"data.length={task.length}"
        )
    return found


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def malformed_records(tasks: Sequence[TaskRows]) -> str:
    """How many records of the text of tasks were malformed, by reason, and where the first of each
    stood; empty if none was. Text that rows of several kinds are made of counts once."""
    of_text = {(ROW_KINDS[task.kind].source, task.languages): task for task in reversed(tasks)}
    found: dict[str, tuple[int, str]] = {}
    for task in reversed(of_text.values()):
        for why, (count, first) in task.malformed.items():
            before, earlier = found.get(why, (0, first))
            found[why] = (before + count, earlier)
    reasons = [f"{why}: {count:,} (first: {first})" for why, (count, first) in found.items()]
    return f"malformed, left out: {'; '.join(reasons)}" if reasons else ""


def align(table: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """The rows as lines, in columns, of which those in `left` are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]
