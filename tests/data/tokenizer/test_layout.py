"""`Ragged`, compared with lists."""

import numpy as np

from xlj.data.tokenizer.layout import Ragged

SEQUENCES = [[7, 8], [], [9], [4, 5, 6]]


def test_ragged_stores_sequences_end_to_end():
    actual = Ragged.of(SEQUENCES)
    assert actual.ids.dtype == np.int32 and actual.ids.tolist() == [7, 8, 9, 4, 5, 6]
    assert actual.lengths.dtype == np.int64 and actual.lengths.tolist() == [2, 0, 1, 3]
    assert actual.starts.tolist() == [0, 2, 2, 3]
    assert Ragged.of([]).ids.dtype == np.int32


def test_select_keeps_the_marked_sequences():
    selected = Ragged.of(SEQUENCES).select(np.array([True, False, False, True]))
    assert selected.ids.tolist() == [7, 8, 4, 5, 6] and selected.lengths.tolist() == [2, 3]
