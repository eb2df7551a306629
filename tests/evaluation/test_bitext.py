"""xsim, xsim++, bitext F1 and accuracy, compared with plain references and by hand.

The references follow LASER's description of xsim (candidates are the k nearest sentences by cosine)
and scikit-learn's weighted F1.
"""

import numpy as np
import pytest

from xlj.evaluation import bitext
from xlj.evaluation.metrics import weighted_f1
from xlj.retrieval.changed_sentences import Changed


def plain_choice(queries, keys, k=4, count=4):
    """Returns the key of each query that LASER chooses among the `count` nearest keys, and the
    nearest key by cosine."""
    queries, keys = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, keys))
    cosines = queries @ keys.T
    density = [np.sort(row)[::-1][:k].mean() for row in cosines]
    key_density = [np.sort(column)[::-1][:k].mean() for column in cosines.T]
    chosen = []
    for i, row in enumerate(cosines):
        candidates = np.argsort(-row, kind="stable")[:count]
        margins = [row[j] / ((density[i] + key_density[j]) / 2) for j in candidates]
        chosen.append(candidates[int(np.argmax(margins))])
    return np.array(chosen), cosines.argmax(1)


def plain_f1(predicted, gold):
    """Returns the weighted F1 from its definition: a class at a time."""
    predicted, gold = np.asarray(predicted), np.asarray(gold)
    total = 0.0
    for name in set(gold.tolist()):
        hits = ((predicted == name) & (gold == name)).sum()
        precision = hits / max(1, (predicted == name).sum())
        recall = hits / (gold == name).sum()
        f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
        total += f1 * (gold == name).sum()
    return total / len(gold)


def vectors(seed, n, m, noise=1.3):
    """Draws the vectors of two texts; source i and target i are translations. Some targets are near
    to many sources, so that margins and cosines differ."""
    rng = np.random.default_rng(seed)
    source = rng.normal(size=(max(n, m), 10)) + 0.7
    target = source + noise * rng.normal(size=source.shape)
    target[::5] = 0.6 * target[::5] + 1.0
    return source[:n].astype(np.float32), target[:m].astype(np.float32)


@pytest.mark.parametrize("with_distractors", [False, True])
def test_both_directions_equal_plain_references(with_distractors):
    n, m = (90, 60) if with_distractors else (70, 70)
    source, target = vectors(n, n, m)
    order = np.random.default_rng(1).permutation(m)
    translations = order if with_distractors else None
    target = target[order] if with_distractors else target
    expected = order if with_distractors else np.arange(m)
    texts = [f"s{k}" for k in range(n)], [f"t{k}" for k in range(m)]
    scores = bitext.score(bitext.search(source, target), texts, translations)
    lines = np.arange(m)
    for direction, (chosen, nearest), queries, gold in (
        ("source_to_target", plain_choice(source, target), expected, lines),
        ("target_to_source", plain_choice(target, source), lines, expected),
    ):
        found = getattr(scores, direction)
        assert found.accuracy == (nearest[queries] == gold).mean()
        assert found.f1 == pytest.approx(plain_f1(nearest[queries], gold))
        assert found.xsim == (chosen[queries] != gold).mean()
        assert 0 < found.f1 < found.accuracy < 1
        assert (chosen != nearest).any()
    assert scores.as_json()["xsim_target_to_source"] == scores.target_to_source.xsim


def test_candidates_are_the_four_nearest_by_cosine_only():
    source, target = vectors(3, 200, 200, noise=2.5)
    found = bitext.search(source, target)
    for best, sides in (
        (found.by_margin.targets, (source, target)),
        (found.by_margin.sources, (target, source)),
    ):
        chosen, _ = plain_choice(*sides)
        np.testing.assert_array_equal(best.indices[:, 0], chosen)
        assert (plain_choice(*sides, count=200)[0] != chosen).any()
    assert found.by_cosine.targets.indices.shape == (200, 4)


def test_f1_of_a_case_by_hand():
    """Classes 0 and 2 are right; 0 is predicted twice, so its F1 is 2 * (1/2 * 1) / (3/2) = 2/3."""
    assert weighted_f1([0, 0, 2, 7], [0, 1, 2, 3]) == pytest.approx((2 / 3 + 0 + 1 + 0) / 4)
    # A class with two gold items counts twice: F1 of "a" is 2 * (1 * 1/2) / (3/2) = 2/3.
    assert weighted_f1("abb", "aab") == pytest.approx((2 * 2 / 3 + 2 / 3) / 3)
    with pytest.raises(ValueError, match="gold is empty"):
        weighted_f1([], [])
    with pytest.raises(ValueError, match="longer|shorter"):
        weighted_f1([1], [1, 2])


@pytest.mark.parity
def test_f1_equals_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(3)
    gold, predicted = rng.integers(0, 40, (2, 100)).tolist()
    predicted[:50] = gold[:50]
    expected = metrics.f1_score(gold, predicted, average="weighted", zero_division=0)
    assert weighted_f1(predicted, gold) == pytest.approx(expected, abs=1e-12)


def test_equal_texts_are_equal_translations_for_xsim_only():
    vectors = np.eye(6, dtype=np.float32)[[0, 1, 2, 2]]
    source = vectors[[0, 1, 2, 2]]
    texts = ["a", "b", "c", "c"]
    same = bitext.score(bitext.search(source, vectors), (texts, texts)).source_to_target
    assert same == (0.75, pytest.approx((1 + 1 + 2 / 3) / 4), 0)
    different = bitext.score(bitext.search(source, vectors), (texts, list("abcd")))
    assert different.source_to_target.xsim == 0.25
    assert different.target_to_source.xsim == 0


def changes_of(texts):
    """Returns three changed sentences for each text, the first of another kind."""
    kinds = ("entity", "number", "number")
    return [Changed(f"{text}+{k}", text, kind) for text in texts for k, kind in enumerate(kinds)]


def test_plus_plus_equals_a_plain_reference_and_counts_errors_by_kind():
    source, target = vectors(5, 80, 80, noise=0.9)
    texts = [f"t{k}" for k in range(80)]
    changed = changes_of(texts)
    rng = np.random.default_rng(2)
    hard = np.repeat(target, 3, 0) + 0.8 * rng.normal(size=(240, 10)).astype(np.float32)
    result = bitext.score_plus_plus(source, target, texts, changed, hard)
    chosen, _ = plain_choice(source, np.concatenate([target, hard]))
    names = [*texts, *(each.text for each in changed)]
    kinds = dict.fromkeys(("entity", "misaligned", "number"), 0)
    for k, place in enumerate(chosen):
        best = names[place]
        if best != texts[k]:
            own = best.startswith(f"{texts[k]}+")
            kind = changed[place - 80].kind if own else "misaligned"
            kinds[kind] += 1
    assert result.errors == kinds and min(kinds.values()) > 0
    assert result.error == sum(kinds.values()) / 80
    plain = bitext.score(bitext.search(source, target), (texts, texts)).source_to_target.xsim
    assert result.error > plain


@pytest.fixture(scope="module")
def small_set():
    """The vectors and texts of a set of three languages, with changed sentences of `en`."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(30, 8)) + 0.5
    noise = {"de": 0.5, "en": 0.0, "zho_Hans": 1.0}
    sides = {
        name: (base + scale * rng.normal(size=base.shape)).astype(np.float32)
        for name, scale in noise.items()
    }
    texts = {name: [f"{name}{k}" for k in range(30)] for name in noise}
    changed = changes_of(texts["en"])
    hard = (np.repeat(base, 3, 0) + 0.4 * rng.normal(size=(90, 8))).astype(np.float32)
    return sides, texts, changed, hard


def test_a_set_has_the_scores_of_its_pairs(small_set):
    sides, texts, changed, hard = small_set
    calls = []
    scores = bitext.score_set(sides, texts, "en", True, (changed, hard), lambda: calls.append(1))
    assert len(calls) == 3 + 2
    assert (scores.languages, scores.sentences, scores.changed) == (list(sides), 30, 90)
    for first, second in (("de", "en"), ("de", "zho_Hans"), ("en", "zho_Hans")):
        found = bitext.search(sides[first], sides[second])
        pair = bitext.score(found, (texts[first], texts[second]))
        assert (scores.pairs[first, second], scores.pairs[second, first]) == pair
    assert scores.plus_plus == {
        name: bitext.score_plus_plus(sides[name], sides["en"], texts["en"], changed, hard)
        for name in ("de", "zho_Hans")
    }
    json = scores.as_json()
    assert len(json["pairs"]) == 6 and json["changed_sentences"] == 90
    rows = {(row["source"], row["target"]): row for row in json["pairs"]}
    assert rows["de", "en"]["xsimpp"] == scores.plus_plus["de"].error
    assert rows["de", "en"]["xsimpp_errors"] == scores.plus_plus["de"].errors
    assert "xsimpp" not in rows["en", "de"]
    assert json["mean"]["f1"] == pytest.approx(np.mean([row["f1"] for row in rows.values()]))
    both = [each.error for each in scores.plus_plus.values()]
    assert json["mean"]["xsimpp"] == pytest.approx(np.mean(both))


def test_the_table_has_a_line_for_each_language_in_80_columns(small_set):
    sides, texts, changed, hard = small_set
    scores = bitext.score_set(sides, texts, "en", True, (changed, hard))
    lines = scores.as_table().split("\n")
    assert all(len(line) == 80 for line in lines)
    assert [line.split()[0] for line in lines[1:]] == ["language", "de", "zho_Hans", "mean"]
    into, out = scores.pairs["de", "en"], scores.pairs["en", "de"]
    others = [into, out, scores.pairs["de", "zho_Hans"], scores.pairs["zho_Hans", "de"]]
    mean = np.mean(others, 0)
    expected = [
        *(scores.plus_plus["de"].error, into.xsim, into.f1, into.accuracy),
        *(out.xsim, out.f1, out.accuracy),
        *(mean[2], mean[1], mean[0]),
    ]
    assert lines[2].split()[1:] == [f"{100 * value:.2f}" for value in expected]
    columns = [[float(x) for x in line.split()[1:]] for line in lines[2:]]
    np.testing.assert_allclose(np.mean(columns[:2], 0), columns[2], atol=0.011)


def test_a_table_without_a_pivot_or_with_the_pivot_alone(small_set):
    sides, texts, *_ = small_set
    without = bitext.score_set(sides, texts).as_table().split("\n")
    assert "from the language" in without[0] and len(without) == 6
    pairs = bitext.score_set(sides, texts).pairs
    xsim = np.mean([pairs["en", other].xsim for other in ("de", "zho_Hans")])
    back = np.mean([pairs[other, "en"].xsim for other in ("de", "zho_Hans")])
    row = without[3].split()
    assert (row[0], row[1], row[4]) == ("en", f"{100 * xsim:.2f}", f"{100 * back:.2f}")
    alone = bitext.score_set(sides, texts, "en", with_all=False)
    assert set(alone.pairs) == {("de", "en"), ("en", "de"), ("en", "zho_Hans"), ("zho_Hans", "en")}
    assert "all pairs" not in alone.as_table() and "into en" in alone.as_table()
    rows, columns, _ = bitext.score_set(sides, texts).matrix()
    assert rows == columns == list(sides)
    sources, targets, matrix = alone.matrix()
    assert matrix[sources.index("de"), targets.index("en")] == 100 * pairs["de", "en"].xsim
    assert np.isnan(matrix[sources.index("de"), targets.index("zho_Hans")])
