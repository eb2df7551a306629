"""Word links: training of a word aligner on sentence pairs with links between their words.

A row has a pair, `<s> A </s> B </s>`, whose words are split into pieces separately, as `xlj.align`
splits them. A pair that is too long for a row becomes several windows (`pair_batches.windows`). The
field `links` of a row has a code for each pair of tokens (`data.labelled.links`). If a piece is
linked only with pieces outside its window, its counterparts are unknown in this window.

Pairs are scored as `xlj.align` aligns them: long pairs are encoded in windows of the model's
length, and all pieces of both sentences are compared. Links are pairs of words whose probability is
at least a threshold. The threshold has the lowest alignment error rate on dev, and is stored in
`TASK`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlj.config.choices import AlignmentOptions
from xlj.config.task import Task
from xlj.data.labelled.examples import LinkedPair
from xlj.data.labelled.features import Features
from xlj.data.labelled.kind import TaskKind
from xlj.data.labelled.links import EXCLUDED, HALF, LINK, POSITIVES, pack
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io.storage import AnyPath
from xlj.word_alignment import gold_alignments, sentence_pairs
from xlj.word_alignment.sentence_pairs import Form, Pair

THRESHOLDS = np.arange(1, 50) / 50
"""The thresholds that are compared on dev."""


class WordLinks(TaskKind):
    """Links the words of a sentence with the words of its translation."""

    name = "word_links"
    token_axes = {"tokens": (1,), "links": (0, 1, 8)}
    metrics = ("link_f1",)
    reads = ("columns", "positives", "gold_from", "threshold")
    example = LinkedPair
    has_labels = False
    ending = "links"
    is_tuned = True
    labels_text = False

    def read(self, path: AnyPath, language: str, task: Task) -> Sequence[LinkedPair]:
        """Reads pairs and links in the formats of `xlj align --gold`.

        The path names a file of pairs whose third column has the links, or PAIRS|LINKS, or
        SOURCE|TARGET|LINKS. Links outside their sentences are reported and left out.
        """
        *pairs, last = str(path).split("|")
        form = Form(
            task.columns, gold_from=None if task.gold_from == "auto" else int(task.gold_from)
        )
        source, gold = ("|".join(pairs), last) if pairs else (last, "")
        _, read = sentence_pairs.read_checked(Path(source), gold, form=form)
        return [_make_example(pair) for pair in read]

    def rows(
        self,
        examples: Sequence[LinkedPair],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> Features:
        """Converts each pair to a row, or to several windows. A pair without pieces on a side has
        no row."""
        from xlj.word_alignment import pair_batches

        sources, targets = (
            pair_batches.pieces_of([getattr(e, side) for e in examples], vocabulary)
            for side in ("source", "target")
        )
        tokens, codes = [], []
        for example, source, target in zip(examples, sources, targets, strict=True):
            sizes = len(source.ids), len(target.ids)
            if not all(sizes):
                continue
            of_words = _word_codes(example, POSITIVES[task.positives])
            of_pieces = of_words[np.ix_(source.words, target.words)]
            for first, second in pair_batches.windows(*sizes, task.length, together=True):
                row, matrix = np.full(task.length, PAD, np.int32), _matrix(task.length)
                begin, end = 1 + first.end - first.start, 0
                row[0], row[1:begin], row[begin] = BOS, source.ids[first.start : first.end], EOS
                end = begin + 1 + second.end - second.start
                row[begin + 1 : end], row[end] = target.ids[second.start : second.end], EOS
                part = of_pieces[first.start : first.end, second.start : second.end]
                matrix[1:begin, begin + 1 : end] = part
                matrix[begin + 1 : end, 1:begin] = part.T
                unknown = [
                    _has_no_counterpart(part) & ~_has_none(of_pieces[first.start : first.end]),
                    _has_no_counterpart(part.T)
                    & ~_has_none(of_pieces.T[second.start : second.end]),
                ]
                places = np.concatenate([1 + np.flatnonzero(unknown[0]),
                                         begin + 1 + np.flatnonzero(unknown[1])])  # fmt: skip
                matrix[places, places] = EXCLUDED
                tokens.append(row)
                codes.append(pack(matrix))
        shape = 2, task.length, -(-task.length // 8)
        links = np.array(codes, np.uint8).reshape(-1, *shape)
        return Features(np.array(tokens, np.int32).reshape(-1, task.length), {"links": links}, {})

    def head(self) -> Any:
        """Returns the head of `objectives.supervised.word_links`."""
        from xlj.objectives.supervised import head as heads
        from xlj.objectives.supervised import word_links

        return heads.TaskHead(
            init=word_links.init,
            logits=word_links.logits,
            losses=word_links.losses,
            weights=word_links.weights,
            by_token=True,
            reads_middle=True,
        )

    def predictor(
        self, pretrained: Any, task: Task
    ) -> Callable[[Sequence[LinkedPair], Callable[[int], object]], list[np.ndarray]]:
        """Returns a function that computes the probabilities of links, as `xlj.align` does.

        Its results are float32 [source words, target words] for each pair.
        """
        from xlj.word_alignment.aligner import Aligner

        def predict(
            examples: Sequence[LinkedPair], progress: Callable[[int], object]
        ) -> list[np.ndarray]:
            aligner = Aligner(pretrained, AlignmentOptions("word_links", "together"))
            pairs = (Pair(e.place, [*e.source], [*e.target]) for e in examples)
            return [matrix for (matrix,) in aligner.soft(pairs, progress)]

        return predict

    def tune(
        self,
        outputs: Mapping[str, Sequence[np.ndarray]],
        examples: Mapping[str, Sequence[LinkedPair]],
        task: Task,
    ) -> Task:
        """Returns the task with the threshold that has the lowest mean alignment error rate over
        languages; of equal rates, the lowest threshold. `task.threshold` has priority."""
        if task.threshold:
            return task
        rates = [_error_rates(outputs[name], examples[name]) for name in outputs]
        best = THRESHOLDS[np.mean(rates, axis=0).argmin()]
        return dataclasses.replace(task, threshold=float(best))

    def decode(
        self,
        outputs: Sequence[np.ndarray],
        rows: Features,
        examples: Sequence[LinkedPair],
        labels: Sequence[str],
        task: Task,
    ) -> list[np.ndarray]:
        """Returns the links of each pair, int [links, 2]: probabilities of at least the
        threshold."""
        from xlj.word_alignment.defaults import THRESHOLD

        return [np.argwhere(matrix >= (task.threshold or THRESHOLD)) for matrix in outputs]

    def scores(
        self,
        predicted: Sequence[np.ndarray],
        examples: Sequence[LinkedPair],
        metric: str,
        language: str,
    ) -> dict[str, float]:
        """Computes F1, the alignment error rate, precision and recall, from 0 to 1."""
        golds = [gold_alignments.Gold(frozenset(e.sure), frozenset(e.possible)) for e in examples]
        scores = gold_alignments.score(predicted, golds)
        return {metric: scores.f1, "aer": scores.aer, "precision": scores.precision,
                "recall": scores.recall}  # fmt: skip

    def to_text(self, predicted: Sequence[np.ndarray]) -> str:
        """Returns a line of links `i-j` for each pair."""
        lines = (" ".join(f"{i}-{j}" for i, j in links.tolist()) for links in predicted)
        return "".join(f"{line}\n" for line in lines)

    def remark(self, examples: Sequence[LinkedPair]) -> str:
        """Returns the numbers of links, and of words without a counterpart."""
        sure, possible = (sum(len(getattr(e, x)) for e in examples) for x in ("sure", "possible"))
        nulls = sum(
            len(words) - len({link[side] for link in (*e.sure, *e.possible)})
            for e in examples
            for side, words in enumerate((e.source, e.target))
        )
        return f"{sure:,} sure and {possible:,} possible links, {nulls:,} words without a link"


def _make_example(pair: Pair) -> LinkedPair:
    assert pair.gold is not None
    m, n = len(pair.source), len(pair.target)
    sure, possible = (
        tuple(sorted((i, j) for i, j in links if 0 <= i < m and 0 <= j < n))
        for links in (pair.gold.sure, pair.gold.possible - pair.gold.sure)
    )
    return LinkedPair(tuple(pair.source), tuple(pair.target), sure, possible, pair.where)


def _word_codes(example: LinkedPair, possible: int) -> np.ndarray:
    """Returns the code of each pair of words, uint8 [source words, target words].

    Args:
      possible: the code of possible links.
    """
    codes = np.zeros((len(example.source), len(example.target)), np.uint8)
    for links, code in ((example.possible, possible), (example.sure, LINK)):
        for link in links:
            codes[link] = code
    return codes


def _matrix(length: int) -> np.ndarray:
    return np.zeros((length, length), np.uint8)


def _has_no_counterpart(codes: np.ndarray) -> np.ndarray:
    """Returns which pieces have no (half) link: codes [m, n] -> bool [m]."""
    return np.logical_not(((codes == LINK) | (codes == HALF)).any(1))


def _has_none(codes: np.ndarray) -> np.ndarray:
    """Returns which pieces have no link at all, also none that is excluded: bool [m]."""
    return np.logical_not((codes > 0).any(1))


def _error_rates(outputs: Sequence[np.ndarray], examples: Sequence[LinkedPair]) -> np.ndarray:
    """Returns the alignment error rate at each of `THRESHOLDS`, float [thresholds]."""
    values, kinds, sure = [], [], 0
    for matrix, example in zip(outputs, examples, strict=True):
        values.append(matrix.ravel())
        kinds.append(_word_codes(example, HALF).ravel())
        sure += len(example.sure)
    value, kind = np.concatenate([np.zeros(0), *values]), np.concatenate([np.zeros(0), *kinds])
    rates = []
    for threshold in THRESHOLDS:
        linked = kind[value >= threshold]
        hits = (linked > 0).sum() + (linked == LINK).sum()
        rates.append(1 - hits / max(len(linked) + sure, 1))
    return np.array(rates)
