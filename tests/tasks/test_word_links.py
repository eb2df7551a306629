"""Word links: rows, losses and probabilities equal a computation in NumPy; thresholds fit dev."""

import dataclasses

import jax
import numpy as np
import pytest

from xlj.config import ConfigError
from xlj.config.choices import AlignmentOptions
from xlj.config.task import Task
from xlj.data.labelled import task_sources
from xlj.data.labelled.examples import LinkedPair
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.models import encoder
from xlj.objectives.supervised import word_links
from xlj.tasks.word_links import WordLinks
from xlj.word_alignment import aligner as aligners
from xlj.word_alignment import gold_alignments
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.sentence_pairs import Pair

KIND = WordLinks()
SOURCE, TARGET = ("the", "gray", "cat"), ("die", "graue", "Katze", "schläft")
LINKED = LinkedPair(SOURCE, TARGET, ((0, 0), (1, 1)), ((0, 1), (2, 2)), "")
"""A pair in which the first source word has a sure and a possible link, the third only a possible
one, and the last target word no link."""


@pytest.fixture(scope="module")
def trained(random_encoder):
    """The random encoder with a head whose parameters are changed by noise."""
    rng = np.random.default_rng(0)
    head = word_links.init(jax.random.key(0), random_encoder.model)
    noisy = jax.tree.map(lambda x: np.float32(x + 0.1 * rng.normal(size=x.shape)), head)
    task = Task(kind="word_links", threshold=0.2)
    params = {**random_encoder.params, word_links.HEAD: noisy}
    return random_encoder._replace(params=params, task=task)


def pieces(vocabulary, words):
    ids = vocabulary.encode_words(list(words))
    return np.concatenate(ids), np.repeat(np.arange(len(words)), [len(x) for x in ids])


def softmax(x):
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def scores_of(head, source, target):
    """Returns the logits of each source piece for the target pieces and, last, for no piece."""
    head = jax.tree.map(np.asarray, head)
    mapped = [x @ head["map"]["kernel"] + head["map"]["bias"] for x in (source, target)]
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in mapped]
    null = unit[0] @ head["null"]["bias"] + head["null"]["scale"]
    return np.exp(head["scale"]) * np.concatenate([unit[0] @ unit[1].T, null[:, None]], 1)


def test_files_of_pairs_and_links_are_read_as_by_xlj_align(tmp_path):
    pairs, links, one_based = (tmp_path / name for name in ("p.tsv", "l.naacl", "l.one"))
    pairs.write_text("a b\tx y z\nc\tw\n")
    links.write_text("7 1 1 S\n7 2 2 P\n7 2 1 S\n9 1 1 P\n")
    one_based.write_text("1-1 2p2 2-1 4-4\n1p1\n")
    expected = [
        LinkedPair(("a", "b"), ("x", "y", "z"), ((0, 0), (1, 0)), ((1, 1),), f"{pairs}:1"),
        LinkedPair(("c",), ("w",), (), ((0, 0),), f"{pairs}:2"),
    ]
    assert KIND.read(f"{pairs}|{links}", "en-de", Task(kind="word_links")) == expected
    task = Task(kind="word_links", gold_from="1")
    assert KIND.read(f"{pairs}|{one_based}", "en-de", task) == expected
    (tmp_path / "t.tsv").write_text("a b\tx y z\t0-0 1-0 1p1\nc\tw\t0p0\n")
    assert [e.content for e in KIND.read(tmp_path / "t.tsv", "en-de", Task(kind="word_links"))] == [
        e.content for e in expected
    ]
    with pytest.raises(ConfigError, match=r"p\.tsv.*expected source, target and gold links"):
        KIND.read(pairs, "en-de", Task(kind="word_links"))
    task = Task(kind="word_links", train=(f"{tmp_path}/p.{{language}}|{links}",))
    pairs.rename(tmp_path / "p.en-de")
    sources = task_sources.resolve(task, "train", ["en-de"])
    assert sources == {"en-de": [f"{tmp_path}/p.en-de|{links}"]}
    read = task_sources.read(*sources["en-de"], "en-de", task)
    assert [example.content for example in read] == [example.content for example in expected]
    links.unlink()
    with pytest.raises(ConfigError, match=r"l\.naacl"):
        task_sources.resolve(task, "train", ["en-de"])
    assert KIND.remark(expected) == "2 sure and 2 possible links, 1 words without a link"


@pytest.mark.parametrize("positives", ["sure", "both", "weighted", "ignored"])
def test_losses_equal_a_computation_by_words(vocabulary, trained, positives):
    task = Task(kind="word_links", positives=positives, length=48)
    features = KIND.rows([LINKED], vocabulary, (), task)
    sides = [pieces(vocabulary, words) for words in (SOURCE, TARGET)]
    m, n = (len(ids) for ids, _ in sides)
    row = features.tokens[0]
    assert row.tolist() == [BOS, *sides[0][0], EOS, *sides[1][0], EOS] + [PAD] * (45 - m - n)
    hidden = np.random.default_rng(1).normal(size=(1, 48, 32)).astype(np.float32)
    head = trained.params[word_links.HEAD]
    logits = word_links.logits(head, trained.model, hidden, features.tokens)
    rows = {"tokens": features.tokens, **features.labels}
    losses, correct = KIND.head().losses(logits, rows)
    weights = np.asarray(KIND.head().weights(rows))[0]

    vectors = hidden[0, 1 : 1 + m], hidden[0, 2 + m : 2 + m + n]
    shares = {"sure": 0.0, "both": 1.0, "weighted": 0.5, "ignored": None}
    by_word = {link: 1.0 for link in LINKED.sure}
    by_word |= {link: shares[positives] for link in LINKED.possible}
    counted = np.zeros(48)
    for side, begin in ((0, 1), (1, 2 + m)):
        own, other = sides[side][1], sides[1 - side][1]
        for piece, scores in enumerate(scores_of(head, vectors[side], vectors[1 - side])):
            ends = [(own[piece], word)[:: 1 - 2 * side] for word in other]
            share = [by_word.get(link, 0.0) for link in ends]
            if None in share and not any(share):
                continue  # only an ignored link: not trained
            keep = [k for k, value in enumerate(share) if value is not None]
            weight = np.array([share[k] for k in keep])
            mass = {0.0: 0.0, 0.5: 0.5, 1.0: 1.0}[weight.max(initial=0)]
            target = np.append(weight / max(weight.sum(), 1e-9) * mass, 1 - mass)
            kept = np.append(scores[keep], scores[-1])
            loss = -(target * np.log(softmax(kept))).sum()
            np.testing.assert_allclose(losses[0, begin + piece], loss, rtol=2e-5, atol=1e-6)
            assert correct[0, begin + piece] == (target[kept.argmax()] > 0)
            counted[begin + piece] = 1
    np.testing.assert_array_equal(weights, counted)
    assert counted.sum() < m + n if positives == "ignored" else counted.sum() == m + n


def test_windows_leave_out_pieces_whose_links_are_elsewhere(vocabulary):
    count = 12
    words = [f"{'ab' * (k + 1)}" for k in range(count)]
    links = tuple((k, count - 1 - k) for k in range(0, count, 2))
    pair = LinkedPair(tuple(words), tuple(words), links, (), "")
    features = KIND.rows([pair], vocabulary, (), Task(kind="word_links", length=32))
    assert len(features.tokens) > 1
    whole = KIND.rows([pair], vocabulary, (), Task(kind="word_links", length=512))
    rows = {"tokens": whole.tokens, **whole.labels}
    assert np.asarray(word_links.weights(rows)).sum() == (whole.tokens > EOS).sum()
    rows = {"tokens": features.tokens, **features.labels}
    codes = np.asarray(word_links.unpack(rows["links"], 32))
    weights = np.asarray(word_links.weights(rows))
    unknown = np.diagonal(codes, axis1=1, axis2=2) == 3
    assert unknown.any() and not weights[unknown].any()
    assert not ((codes == 1).any(2) & unknown).any()
    np.testing.assert_array_equal(codes, codes.swapaxes(1, 2))


apply = jax.jit(encoder.apply, static_argnames=("model", "layers"))


def probabilities_alone(trained, pair):
    """Returns the probabilities of links and of no counterpart by word, for one pair in a row."""
    sides = [pieces(trained.vocabulary, words) for words in pair[1:3]]
    tokens = np.array([[BOS, *sides[0][0], EOS, *sides[1][0], EOS]])
    places, ones = np.arange(tokens.shape[1])[None], np.ones_like(tokens)
    side = (places >= 2 + len(sides[0][0])).astype(np.int32)
    inputs = encoder.Inputs(tokens, places, ones, ones, sides=side)
    hidden = np.asarray(apply(trained.params, trained.model, inputs, layers=2))[0]
    vectors = hidden[1 : 1 + len(sides[0][0])], hidden[2 + len(sides[0][0]) : -1]
    directions = []
    for k in (0, 1):
        of_pieces = softmax(scores_of(trained.params[word_links.HEAD], vectors[k], vectors[1 - k]))
        own, other = sides[k][1], sides[1 - k][1]
        words = np.zeros((len(pair[1 + k]), len(pair[2 - k]) + 1))
        for piece, row in enumerate(of_pieces):
            share = 1 / (own == own[piece]).sum()
            np.add.at(words[own[piece]], np.append(other, len(pair[2 - k])), share * row)
        directions.append(words)
    forward, backward = directions
    return (forward[:, :-1] + backward[:, :-1].T) / 2, forward[:, -1], backward[:, -1]


def test_the_aligner_computes_the_probabilities_of_links_and_of_no_counterpart(trained):
    pairs = [Pair("", [*SOURCE], [*TARGET]), Pair("", ["a"], []), Pair("", [*TARGET], ["a", "cat"])]
    aligner = Aligner(trained, AlignmentOptions())
    assert aligner.threshold == 0.2
    soft, scored = list(aligner.soft(pairs)), list(aligner.scored(pairs))
    for pair, (matrix,), (aligned,) in zip(pairs, soft, scored, strict=True):
        if not pair.target:
            assert not len(aligned.links) and [x.tolist() for x in aligned.nulls] == [[1.0], []]
            continue
        expected, *nulls = probabilities_alone(trained, pair)
        np.testing.assert_allclose(matrix, expected, atol=2e-5)
        for side, null in zip(aligned.nulls, nulls, strict=True):
            np.testing.assert_allclose(side, null, atol=2e-5)
        np.testing.assert_array_equal(aligned.links, np.argwhere(expected >= 0.2))
        np.testing.assert_allclose(aligned.confidences, expected[expected >= 0.2], atol=2e-5)
    assert sum(len(aligned.links) for (aligned,) in scored) > 3 and aligner.windowed == 0
    (links,) = next(Aligner(trained, AlignmentOptions(), threshold=0.35).align(pairs))
    assert 0 < len(links) < len(scored[0][0].links)
    untuned = trained._replace(task=dataclasses.replace(trained.task, threshold=0.0))
    assert Aligner(untuned, AlignmentOptions()).threshold == 0.3
    assert Aligner(trained, AlignmentOptions("argmax")).threshold == 0
    assert next(Aligner(trained, AlignmentOptions("argmax")).scored(pairs))[0].nulls is None


def test_links_across_windows_are_found(trained):
    """A pair of 40 words is longer than the 38 tokens of the model."""
    long = Pair("", ["cat"] * 40, ["cat", "dog"] * 20)
    aligner = Aligner(trained, AlignmentOptions())
    (matrix,) = next(aligner.soft([long]))
    assert aligner.windowed == 1 and matrix.shape == (40, 40) and (matrix > 0).all()
    (aligned,) = next(aligner.scored([long]))
    assert all(len(side) == 40 and (0 < side).all() for side in aligned.nulls)


def test_the_threshold_has_the_lowest_mean_error_rate_on_dev():
    rng = np.random.default_rng(0)
    outputs, examples = {}, {}
    for name, shift in (("en-de", 0.0), ("en-fr", 0.3)):
        links = np.triu(np.tril(np.ones((6, 6)), 1))
        outputs[name] = [0.4 * links + shift + 0.3 * rng.random((6, 6)) for _ in range(5)]
        sure = tuple((k, k) for k in range(6))
        possible = tuple((k, k + 1) for k in range(5))
        examples[name] = [LinkedPair(("w",) * 6, ("w",) * 6, sure, possible, "")] * 5
    tuned = KIND.tune(outputs, examples, Task(kind="word_links"))

    def mean_rate(threshold):
        task = Task(kind="word_links", threshold=threshold)
        return np.mean(
            [
                KIND.scores(
                    KIND.decode(outputs[n], None, examples[n], (), task), examples[n], "", n
                )["aer"]
                for n in outputs
            ]
        )

    rates = {k / 50: mean_rate(k / 50) for k in range(1, 50)}
    assert tuned.threshold == min(rates, key=rates.get) and 0.3 < tuned.threshold < 0.8
    assert KIND.tune(outputs, examples, Task(kind="word_links", threshold=0.1)).threshold == 0.1
    links = KIND.decode(outputs["en-fr"], None, examples["en-fr"], (), tuned)
    golds = [
        gold_alignments.Gold(frozenset(e.sure), frozenset(e.possible)) for e in examples["en-fr"]
    ]
    assert KIND.scores(links, examples["en-fr"], "link_f1", "en-fr")["link_f1"] == pytest.approx(
        gold_alignments.score(links, golds).f1
    )


def test_the_values_of_nulls_follow_the_confidences(trained):
    from xlj.word_alignment import link_formats

    pair = Pair("", [*SOURCE], ["a", "cat"])
    (aligned,) = next(Aligner(trained, AlignmentOptions()).scored([pair]))
    assert isinstance(aligned, aligners.PairLinks)
    columns = link_formats.write("pharaoh", 1, pair, aligned, True).rstrip("\n").split("\t")
    assert [len(column.split()) for column in columns] == [len(aligned.links)] * 2 + [3, 2]
    np.testing.assert_allclose([float(x) for x in columns[3].split()], aligned.nulls[1], atol=1e-4)
