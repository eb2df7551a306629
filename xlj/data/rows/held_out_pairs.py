"""The sentence pairs in held-out rows, apart again."""

from collections import Counter

import numpy as np

from xlj.data.ragged import Ragged
from xlj.data.rows import packing
from xlj.data.rows.store import RowStore
from xlj.io.hashing import sample


def read(store: RowStore, pair: str, count: int) -> tuple[Ragged, Ragged]:
    """Held-out sentence pairs of a language pair, both sides in pieces, without specials.

    A pair with a sentence that another has on the same side is left out, since either would be
    right. Of the rest it is the same sample each time, of at most `count`; there may be none.
    """
    names = {task.name for task in store.manifest.tasks}
    name = next(name for name in (f"pairs.{pair}", f"bitext.{pair}") if name in names)
    rows = store.task(name).held_out.rows
    kind = name.partition(".")[0]
    first, second = packing.sides_of(kind, store.read(name, "held_out", np.arange(rows)))
    distinct = np.flatnonzero(_once(first) & _once(second))
    keep = np.zeros(len(first.lengths), bool)
    keep[distinct[sample(count, len(distinct))]] = True
    return first.select(keep), second.select(keep)


def _once(sentences: Ragged) -> np.ndarray:
    """Which sentences are there once only: bool [sentences]."""
    ends = sentences.starts + sentences.lengths
    spans = zip(sentences.starts.tolist(), ends.tolist(), strict=True)
    texts = [sentences.ids[start:end].tobytes() for start, end in spans]
    counts = Counter(texts)
    return np.array([counts[text] == 1 for text in texts], bool)
