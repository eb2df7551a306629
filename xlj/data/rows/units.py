"""A unit of work: a fixed number of input lines, built into rows, as a shard on disk.

What a unit yields depends on its lines only, not on who builds it or when, so a killed run goes on
where it stopped.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from xlj.data.rows import packing
from xlj.data.rows.shards import Counts, End, Shards
from xlj.data.text import held_out, seqio_tasks
from xlj.data.text.cleaning import line_hashes
from xlj.data.text.held_out import Rule
from xlj.data.text.text_tasks import Block, TextTask
from xlj.data.tokenizer.vocabulary import Vocabulary

UNIT_LINES = 16_384
"""Input lines in a unit of work. Fixed, so that rows do not depend on who builds them."""

_vocabulary = lru_cache(maxsize=1)(Vocabulary.load)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How the rows of a task are built: what is held out of each column's language, and the file of
    the vocabulary; small, so that workers can be sent it."""

    task: TextTask
    shards: Shards
    rules: tuple[Rule, ...]
    vocabulary: Path


def missing_units(plan: Plan) -> Iterator[tuple[Plan, int, Block]]:
    """The units of a task that have no good shard yet, as `build_unit` takes them. When the text
    was read to its end this is noted down, so that a finished task is not read again."""
    shards = plan.shards
    end = shards.read_end()
    if end is not None and all(shards.read(index) is not None for index in range(end.units)):
        return
    skipped: Counter[str] = Counter()
    count = 0
    for index, columns in enumerate(seqio_tasks.read(plan.task, UNIT_LINES, skipped)):
        count += 1
        if shards.read(index) is None:
            yield plan, index, columns
    shards.write_end(End(count, dict(skipped)))


def build_unit(plan: Plan, index: int, columns: Block) -> int:
    """Builds the rows of a unit of clean text, `(lines,)` with an empty line after each document or
    both sides of pairs; writes its shard, and returns the number of input lines."""
    lines = len(columns[0])
    vocabulary = _vocabulary(plan.vocabulary)
    hashes = [line_hashes(column) for column in columns]
    out, sharing = held_out.split(hashes, plan.rules)
    encoded = [vocabulary.encode(column) for column in columns]
    blank = np.array([not line for line in columns[0]], bool)
    is_sentence = ~blank if len(encoded) == 1 else np.ones(lines, bool)
    sentences = int(is_sentence.sum())
    documents = np.cumsum(blank)  # of each line
    # Held-out lines are not neighbours in their document, so each is an example of its own.
    train, aside = (
        packing.pack(
            plan.task.kind,
            [side.select(keep) for side in encoded],
            of[keep],
            plan.shards.length,
            np.dtype(plan.shards.dtype),
            mask=vocabulary.mask,
        )
        for keep, of in (
            (~out & ~sharing & is_sentence, documents),
            (out & is_sentence, np.arange(lines)),
        )
    )
    dropped = Counter(train.dropped) + Counter(aside.dropped)
    dropped += Counter({held_out.REASON: int(sharing.sum())})
    kept = train.sentences + aside.sentences
    # Text whose every character the normalisation removes.
    dropped += Counter({"no tokens": sentences - kept - dropped.total()})
    of_train, of_aside = (
        {"rows": len(made.rows), "examples": made.examples, "sentences": made.sentences}
        for made in (train, aside)
    )
    counts = Counts(of_train, of_aside, sentences, train.cut, dict(sorted(dropped.items())))
    plan.shards.write(index, counts, train.rows, aside.rows)
    return lines
