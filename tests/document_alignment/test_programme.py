"""document_alignment/programme.py finds the best path inside a band."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.references.document_alignment import best_score
from xlj.document_alignment import programme


def table(seed, rows, columns, sizes):
    """Random scores, some of them forbidden; [rows + 1, sizes, sizes, columns + 1]."""
    rng = np.random.default_rng(seed)
    values = rng.normal(-0.5, 1.5, (rows + 1, sizes, sizes, columns + 1)).astype(np.float32)
    values[rng.random(values.shape) < 0.1] = -np.inf
    return values


def reader(values):
    return lambda i, k, lo, hi: values[i:k, :, :, lo:hi]


def pairs_of(cells):
    """The pairs of blocks of a path. Skipped sources and targets of a gap may be in any order."""
    steps = zip(cells[:-1].tolist(), cells[1:].tolist(), strict=True)
    return [(a, b) for a, b in steps if a[0] < b[0] and a[1] < b[1]]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 9999), st.integers(0, 9), st.integers(0, 9), st.integers(1, 4))
def test_path_is_the_best_of_an_exhaustive_programme(seed, rows, columns, sizes):
    values = table(seed, rows, columns, sizes)
    options = {"open_gap": -0.7, "skip": -0.2, "close": -0.1}
    path = programme.best_path(reader(values), programme.full(rows, columns), sizes, **options)
    score, cells = best_score(
        lambda i, j, n, m: float(values[i, n - 1, m - 1, j]), rows, columns, sizes, **options
    )
    assert path.score == pytest.approx(score, abs=1e-4)
    assert pairs_of(path.cells) == pairs_of(np.array(cells))


def test_a_band_around_the_best_path_has_the_best_path(monkeypatch):
    """Also with several blocks of rows."""
    monkeypatch.setattr(programme, "ROWS", 4)
    values = table(3, 40, 50, 3)
    values[:, :, :, 20:32] -= 9  # a gap
    options = {"open_gap": -0.7, "skip": -0.2}
    path = programme.best_path(reader(values), programme.full(40, 50), 3, **options)
    band = programme.around(path.cells, 2, 40, 50)
    assert programme.best_path(reader(values), band, 3, **options).cells.tolist() == (
        path.cells.tolist()
    )
    assert (np.diff(band.starts) >= 0).all() and (np.diff(band.stops) >= 0).all()
    inside = {(i, j) for i in range(41) for j in range(band.starts[i], band.stops[i])}
    distances = {
        (i, j): min(max(abs(i - a), abs(j - b)) for a, b in path.cells)
        for i in range(41)
        for j in range(51)
    }
    assert {cell for cell, distance in distances.items() if distance <= 2} <= inside
    assert all(distances[cell] <= 2 + 2 for cell in inside)  # inside a step of up to 3 sentences
