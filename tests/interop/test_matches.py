"""Reports count every piece and token once."""

import numpy as np
from marked_pieces import MarkedPieces

from xlj.interop.matches import RULES, table
from xlj.interop.vocabulary_matching import match


def test_counts_and_table():
    old = MarkedPieces(("the", "dog"), "wordpiece")
    new = MarkedPieces(("▁the", "▁The", "▁Hund", "x"))
    matches = match(old, new, [{"hund": ("dog",)}])
    tokens = {
        "en": np.array([0, 0, 0, 1, 6, 2, 0, 1, 0]),
        "de": np.array([0, 0, 0, 0, 1, 0, 3, 0, 0]),
        "sw": np.zeros(9, np.int64),
    }
    pieces = matches.by_rule(np.ones(9, np.int64))
    assert dict(zip(RULES, pieces, strict=True)) == {
        "special": 5, "exact": 1, "normalised": 1, "dictionary": 1, "accents": 0, "place": 0,
        "pieces": 0, "none": 1,
    }  # fmt: skip
    found = {name: matches.by_rule(counts) for name, counts in tokens.items()}
    assert found["en"].tolist() == [1, 6, 2, 0, 0, 0, 0, 1]
    assert found["de"].tolist() == [0, 1, 0, 3, 0, 0, 0, 0]
    assert all(found[name].sum() == counts.sum() for name, counts in tokens.items())
    assert table(matches, tokens).split("\n") == [
        "            in all  special %  exact %  normalised %  dictionary %  none %",
        "vocabulary       9      55.56    11.11         11.11         11.11   11.11",
        "en              10      10.00    60.00         20.00          0.00   10.00",
        "de               4       0.00    25.00          0.00         75.00    0.00",
        "sw               0       0.00     0.00          0.00          0.00    0.00",
    ]
