"""document_alignment aligns documents from coarse to fine; parameters come from the documents."""

import numpy as np
import pytest

from xlj.document_alignment import aligner, blocks, evidence, programme, report
from xlj.document_alignment.blocks import SIZES, Blocks
from xlj.document_alignment.pair_formats import Aligned


def documents(count, seed=0, noise=0.05, gap=0):
    """Two documents of random vectors, and their alignment.

    Every 7th source is split into two targets, every 11th two sources are one target, every 13th
    source has no target, and `gap` sources in the middle have no target.
    """
    rng = np.random.default_rng(seed)
    meaning = rng.normal(size=(count, 64)) + 2  # a common mean, as encoders have
    lengths = np.exp(rng.normal(4.5, 0.5, count))
    sides, gold, sizes = ([], []), [], ([], [])

    def add(side, vector, length):
        sides[side].append(vector + rng.normal(size=64) * 64**0.5 * noise)
        sizes[side].append(length * (1 if side == 0 else 1.2) * np.exp(rng.normal(0, 0.1)))

    k = 0
    while k < count:
        ends = tuple(map(len, sides))
        if k % 13 == 0 or count // 2 <= k < count // 2 + gap:
            add(0, meaning[k], lengths[k])
            k += 1
            continue
        if k % 11 == 0 and k + 1 < count:
            add(0, meaning[k], lengths[k])
            add(0, meaning[k + 1], lengths[k + 1])
            weights = lengths[k : k + 2] ** blocks.WEIGHT
            joint = (weights[:, None] * (meaning[k : k + 2] - 2)).sum(0) / np.linalg.norm(weights)
            add(1, joint + 2, lengths[k : k + 2].sum())
            k += 2
        elif k % 7 == 0:
            add(0, meaning[k], lengths[k])
            part = rng.normal(size=64)
            for sign in (1, -1):
                add(1, meaning[k] + sign * part, lengths[k] / 2)
            k += 1
        else:
            add(0, meaning[k], lengths[k])
            add(1, meaning[k], lengths[k])
            k += 1
        gold.append((range(ends[0], len(sides[0])), range(ends[1], len(sides[1]))))
    made = []
    for side, length in zip(sides, sizes, strict=True):
        texts = ["x" * max(1, round(value)) for value in length]
        starts = np.zeros(len(texts), np.int64)
        made.append(blocks.of_sentences(np.array(side, np.float32), texts, starts))
    return *made, gold


def test_pairs_gaps_and_a_long_gap_are_found():
    source, target, gold = documents(400, gap=60)
    steps = aligner.align(source, target)
    pairs = {(step.source, step.target) for step in steps if not step.is_gap}
    assert len(pairs & set(gold)) > 0.98 * len(gold) > 0.95 * len(pairs)
    for side, document in (("source", source), ("target", target)):
        covered = [k for step in steps for k in getattr(step, side)]
        assert covered == list(range(len(document)))
    confidences = [step.confidence for step in steps if not step.is_gap]
    assert np.median(confidences) == pytest.approx(0.99, abs=1e-3)
    assert {step.confidence for step in steps if step.is_gap} == {0.0}


def test_documents_that_are_no_translations_have_a_low_confidence():
    source, target, _ = documents(250)
    other = documents(250, seed=1)[1]
    assert report.confidence(aligner.align(source, target)) > 0.8
    steps = aligner.align(source, other)
    assert report.confidence(steps) < 0.35 and steps == aligner.align(source, other)


def test_short_documents():
    source, target, _ = documents(2)
    one = Blocks(source.weighted[:1], source.lengths[:1], source.starts[:1])
    for a, b in ((one, one), (one, target), (target, one)):
        steps = aligner.align(a, b)
        assert sum(len(step.source) for step in steps) == len(a)
        assert sum(len(step.target) for step in steps) == len(b)


def test_cells_grow_linearly_with_the_length():
    """Memory is two bytes a cell, and time is linear in the cells."""
    counts = []
    for count in (400, 800, 1600):
        source, target, _ = documents(count, gap=50)
        band = aligner.band(source, target)
        counts.append(int((band.stops - band.starts).sum()) / count)
    assert max(counts) < 1.2 * min(counts) and max(counts) < 6 * aligner.RADIUS


def test_a_block_does_not_cross_a_break():
    source, target, gold = documents(60)
    crossing = next(a for a, _ in gold if len(a) == 2)
    starts = np.where(np.arange(len(source)) > crossing[0], crossing[1], 0)
    broken = Blocks(source.weighted, source.lengths, starts)
    for step in aligner.align(broken, target):
        assert not {*crossing} <= {*step.source}
    assert any({*crossing} <= {*step.source} for step in aligner.align(source, target))


def test_vectors_of_blocks_are_sums_and_encoded_blocks_replace_them():
    source, _, _ = documents(9)
    vectors = source.vectors(3, 7, SIZES)
    for n in range(SIZES):
        for row in range(4):
            total = source.weighted[max(0, 3 + row - n) : 3 + row + 1].sum(0)
            expected = total / np.linalg.norm(total)
            np.testing.assert_allclose(vectors[n, row], expected, atol=1e-6)
    joins = np.random.default_rng(0).normal(size=(SIZES - 1, 9, 64)).astype(np.float32)
    texts = ["one"] * 9
    encoded = blocks.of_sentences(source.weighted, texts, np.zeros(9, np.int64), joins)
    centred = joins[1] - joins[1].mean(0)
    expected = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    np.testing.assert_allclose(encoded.vectors(2, 5, SIZES)[2], expected[2:5], atol=1e-6)
    texts = ["a", "b", "c", "d"]
    assert blocks.joined_texts(texts, np.array([0, 0, 2, 2]), 3) == ["a", "a b", "c", "c d"]


def test_ratios_are_those_of_plain_formulas():
    source, target, _ = documents(30)
    kinds = evidence.first_kinds(2)
    e = evidence.Evidence(0.7, 0.1, 0.08, 0.2, 0.01, 2.0, 0.5, kinds, 0.1, 0.4)
    actual = evidence.Scorer(e, source, target).scores(5, 9, 4, 20)
    slope = 0.8 * 0.7 / ((0.1**2 + 0.08**2) / 2)
    for i, n, m, j in ((5, 1, 1, 4), (7, 2, 1, 6), (8, 1, 2, 19), (6, 2, 2, 10)):
        x, y = (
            blocks._unit(side.weighted[end - size : end].sum(0))
            for side, end, size in ((source, i, n), (target, j, m))
        )
        a, b = source.lengths[i - n : i].sum(), target.lengths[j - m : j].sum()
        narrow = 0.01 + 2.0 * (1 / a + np.exp(0.2) / b) / 2
        off = np.log(b / a) - 0.2
        lengths = np.log(0.5 / narrow) / 2 - off**2 / 2 * (1 / narrow - 1 / 0.5)
        expected = max(slope * (x @ y - 0.35), -3) + max(lengths, -8)
        expected += np.log(kinds[n - 1, m - 1] * 0.9)
        assert actual[i - 5, n - 1, m - 1, j - 4] == pytest.approx(expected, rel=1e-4)


def test_a_path_gives_the_shares_of_kinds_and_gaps():
    source, target, _ = documents(200)
    cells = [(0, 0), (1, 1), (2, 2), (3, 2), (4, 2), (5, 3), (6, 5)]
    cells += [(6 + k, 5 + k) for k in range(1, 150)]
    first = evidence.first_estimate(source, target, 4)
    path = programme.Path(np.array(cells), 0.0)
    again = evidence.estimate_again(first, source, target, path)
    pairs = 153
    assert again.kinds.sum() == pytest.approx(1)
    share = (1 + 20 * evidence.first_kinds(4)[0, 1]) / (pairs + 20)
    assert again.kinds[0, 1] == pytest.approx(share)
    assert again.gap == pytest.approx(2 / (pairs + 20)) and again.stay == pytest.approx(2.2 / 4)


def test_the_report_counts_kinds_and_gaps():
    Step = aligner.Pair
    steps = [
        Step(range(0, 0), range(0, 1), 0.0),
        Step(range(0, 1), range(1, 1), 0.0),
        Step(range(0, 1), range(1, 3), 0.9),
        Step(range(1, 2), range(3, 3), 0.0),
        Step(range(2, 3), range(3, 4), 0.4),
    ]

    class Texts:
        def __init__(self, count):
            self.texts, self.ids = ["word " * 40] * count, []

        def numbers_of(self, sentences):
            return list(sentences)

        def ids_of(self, sentences):
            return []

    summary = report.summarise([Aligned(Texts(3), Texts(4), steps)], 0.5)
    assert summary["pairs"] == 2 and summary["left_out"] == 1
    assert summary["kinds"] == {"1-1": 0.5, "1-2": 0.5}
    expected = {"count": 2, "longest": 2, "source_sentences": 2, "target_sentences": 1}
    assert summary["gaps"] == expected
    assert [each["confidence"] for each in summary["worst"]] == [0.4, 0.9]
    assert summary["confidence"] == pytest.approx((3 * 0.9 + 2 * 0.4) / 8, abs=1e-4)
