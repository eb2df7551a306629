"""A table of what became of the text, from a store's manifest."""

from collections.abc import Iterable, Sequence

from xlj.config import ROW_KINDS
from xlj.data.rows.rates import BLOCK, draws_per_block, rates
from xlj.data.rows.store import RowStore, TaskRows

_HEADER = "task,sentences,held out,dropped,cut,tokens,rows,fill %,p %,drawn %".split(",")


def report(store: RowStore, alpha: float) -> str:
    """A table of each language and pair: sentences read, held out and dropped (by reason),
    documents cut, tokens and rows to train on, how full rows are, and how often they are drawn.

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
        table = [[*_row(t), _percent(probabilities[t.name]), _percent(draws[t.name] / BLOCK)]
                 for t in tasks]  # fmt: skip
        lines += [
            "",
            f"{kind}: rows of {tasks[0].length} tokens, alpha = {alpha:g}",
            *align([_HEADER, *table, _total(tasks)]),
        ]
        notes += [note for task in tasks for note in _notes(task)]
    held = manifest.recipe["held_out_lines"]
    if held:
        kept = {name for t in manifest.tasks if t.held_out.rows for name in t.languages}
        every = dict.fromkeys(name for t in manifest.tasks for name in t.languages)
        notes += [
            f"{name} has no held-out rows: too little text" for name in every if name not in kept
        ]
    return "\n".join(lines + ([""] + notes if notes else []))


def _row(task: TaskRows) -> list[str]:
    fill = task.train.tokens / (task.train.rows * task.length)
    counts = [
        task.sentences,
        task.held_out.sentences,
        sum(task.dropped.values()),
        task.cut,
        task.train.tokens,
        task.train.rows,
    ]
    return [task.name, *(f"{count:,}" for count in counts), f"{100 * fill:.1f}"]


def _total(tasks: Sequence[TaskRows]) -> list[str]:
    columns = [
        sum(task.sentences for task in tasks),
        sum(task.held_out.sentences for task in tasks),
        sum(sum(task.dropped.values()) for task in tasks),
        sum(task.cut for task in tasks),
        sum(task.train.tokens for task in tasks),
        sum(task.train.rows for task in tasks),
    ]
    fill = columns[-2] / (columns[-1] * tasks[0].length)
    return ["all", *(f"{count:,}" for count in columns), f"{100 * fill:.1f}", "100", "100"]


def _notes(task: TaskRows) -> Iterable[str]:
    for reason, count in task.dropped.items():
        yield f"{task.name}: {count:,} dropped, {reason}"


def _percent(share: float) -> str:
    return f"{100 * share:.3f}"


def align(table: list[list[str]]) -> list[str]:
    """The rows as lines, in columns: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in table
    ]
