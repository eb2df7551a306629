"""A table of what became of the text, from a store's manifest."""

from collections.abc import Sequence

from xlj.config import ROW_KINDS
from xlj.data.rows.draws import BLOCK, draws_per_block, rates
from xlj.data.rows.store import RowStore, TaskRows

_HEADER = "task,MB,sentences,held out,dropped,cut,tokens,rows,fill %,p %,drawn %".split(",")


def report(store: RowStore, alpha: float) -> str:
    """A table of each language and pair: MB of input, sentences read, held out and dropped (by
    reason), documents cut, tokens and rows to train on, how full rows are, and their draws.

    `p` is the sampling probability among tasks of its kind with this alpha, `drawn` the exact share
    of draws after rounding to blocks.
    """
    manifest = store.manifest
    lines = [
        f"rows: {store.path}",
        f"vocabulary: {manifest.vocabulary_size:,} ids, sha256 {manifest.vocabulary_digest[:16]}",
    ]
    notes = []
    for kind in ROW_KINDS:
        tasks = store.tasks(kind)
        if not tasks:
            continue
        probabilities = rates({task.name: task.train.tokens for task in tasks}, alpha)
        draws = draws_per_block(probabilities)
        length, counts = tasks[0].length, {task.name: _counts(task) for task in tasks}
        table = []
        for name, found in counts.items():
            shares = probabilities[name], draws[name] / BLOCK
            table.append([*_row(name, found, length), *(f"{100 * share:.3f}" for share in shares)])
        total = [sum(column) for column in zip(*counts.values(), strict=True)]
        lines += [
            "",
            f"{kind}: rows of {length} tokens, alpha = {alpha:g}",
            *align([_HEADER, *table, [*_row("all", total, length), "100", "100"]]),
        ]
        notes += [
            f"{task.name}: {count:,} dropped, {reason}"
            for task in tasks
            for reason, count in task.dropped.items()
            if reason not in task.malformed
        ]
        notes += [f"{t.name}: {malformed_records([t])}" for t in tasks if t.malformed]
    if manifest.recipe["held_out_share"]:
        kept = {name for t in manifest.tasks if t.held_out.rows for name in t.languages}
        every = dict.fromkeys(name for t in manifest.tasks for name in t.languages)
        notes += [
            f"{name} has no held-out rows: too little text" for name in every if name not in kept
        ]
    return "\n".join(lines + ([""] + notes if notes else []))


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


def _counts(task: TaskRows) -> list[int]:
    return [
        task.input_bytes,
        task.sentences,
        task.held_out.sentences,
        sum(task.dropped.values()),
        task.cut,
        task.train.tokens,
        task.train.rows,
    ]


def _row(name: str, counts: Sequence[int], length: int) -> list[str]:
    read, *others, tokens, rows = counts
    shown = [f"{read / 1e6:,.1f}", *(f"{count:,}" for count in (*others, tokens, rows))]
    return [name, *shown, f"{100 * tokens / (rows * length):.1f}"]


def align(table: list[list[str]]) -> list[str]:
    """The rows as lines, in columns: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = []
    for first, *others in table:
        right = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *right]))
    return lines
