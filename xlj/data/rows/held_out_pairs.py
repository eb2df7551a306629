"""Reads the sentence pairs of held-out rows."""

from collections import Counter

import numpy as np

from xlj.config import row_kinds
from xlj.data.ragged import Ragged
from xlj.data.rows.store import RowStore
from xlj.io.hashing import sample


def read(store: RowStore, pair: str, count: int) -> tuple[Ragged, Ragged]:
    """Samples held-out sentence pairs of a language pair; the sample is always the same.

    Pairs with a sentence that occurs more than once on its side are omitted, because retrieval
    would have several correct answers.

    Args:
      store: the row store.
      pair: the language pair, such as `en-de`. The store must have rows of it.
      count: maximum number of pairs.

    Returns:
      The first and the second sentences of 0 to `count` pairs, as token ids without special tokens.
    """
    names = {task.name for task in store.manifest.tasks}
    name = next(name for name in (f"pairs.{pair}", f"bitext.{pair}") if name in names)
    rows = store.task(name).held_out.rows
    kind = name.partition(".")[0]
    first, second = row_kinds.load(kind).unpack(store.read(name, "held_out", np.arange(rows)))
    distinct = np.flatnonzero(_occurs_once(first) & _occurs_once(second))
    keep = np.zeros(len(first.lengths), bool)
    keep[distinct[sample(count, len(distinct))]] = True
    return first.select(keep), second.select(keep)


def _occurs_once(sentences: Ragged) -> np.ndarray:
    """Marks the sentences that occur exactly once: bool [sentences]."""
    ends = sentences.starts + sentences.lengths
    spans = zip(sentences.starts.tolist(), ends.tolist(), strict=True)
    texts = [sentences.ids[start:end].tobytes() for start, end in spans]
    counts = Counter(texts)
    return np.array([counts[text] == 1 for text in texts], bool)
