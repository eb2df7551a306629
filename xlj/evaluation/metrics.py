"""Computes metrics of predictions, as functions of plain lists and counts.

- accuracy, and F1, precision and recall from counts
- F1 averaged over classes, as mteb uses it for bitext mining
- F1 of chunks of tagged words, as CoNLL defines it and seqeval does in lenient mode
- F1 of mined sentence pairs, and the threshold with the best F1 on a development set, as in BUCC
- nDCG, reciprocal rank and recall of ranked documents, as trec_eval defines them
- correlations of predicted and gold scores, as for semantic textual similarity (STS)
- exact match and F1 of answers to questions, as SQuAD 1.1 and MLQA define them
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from xlj.config.languages import language_of
from xlj.data.labelled.conll import find_chunks


def accuracy(predicted: Sequence, gold: Sequence) -> float:
    """Returns the share of predictions that equal the gold item at the same index.

    For indices of retrieved sentences, this is accuracy@1.

    Raises:
      ValueError: if the arguments differ in length or are empty.
    """
    if not gold:
        raise ValueError("gold is empty; expected at least one item")
    return sum(a == b for a, b in zip(predicted, gold, strict=True)) / len(gold)


class ShareScores(NamedTuple):
    """F1, precision and recall, between 0 and 1. 0 / 0 is 0."""

    f1: float
    precision: float
    recall: float


def f1_scores(correct: int, predicted: int, gold: int) -> ShareScores:
    """Computes F1, precision and recall from the numbers of correct, predicted and gold items."""
    if not correct:
        return ShareScores(0.0, 0.0, 0.0)
    precision, recall = correct / predicted, correct / gold
    return ShareScores(2 * precision * recall / (precision + recall), precision, recall)


def weighted_f1(predicted: Sequence[Hashable], gold: Sequence[Hashable]) -> float:
    """Returns the mean F1 of all classes, weighted by the number of gold items of each class.

    It equals scikit-learn's `f1_score(gold, predicted, average="weighted")`.

    Args:
      predicted, gold: the predicted and the gold class of each item.

    Raises:
      ValueError: if the arguments differ in length or are empty.
    """
    if not gold:
        raise ValueError("gold is empty; expected at least one item")
    pairs = zip(predicted, gold, strict=True)
    correct = Counter(expected for given, expected in pairs if given == expected)
    predictions, golds = Counter(predicted), Counter(gold)
    scores = (
        golds[name] * f1_scores(count, predictions[name], golds[name]).f1
        for name, count in correct.items()
    )
    return sum(scores) / len(gold)


def chunk_scores(
    predicted: Iterable[Sequence[str]], gold: Iterable[Sequence[str]], raw: bool = False
) -> ShareScores:
    """Scores the chunks of all sentences together (micro-average).

    A chunk is correct if the kind, the start and the end are correct.

    Args:
      predicted, gold: the tags of each sentence's words.
      raw: whether tags have no prefix such as B or I, like parts of speech
        (`data.labelled.conll.find_chunks`).

    Raises:
      ValueError: if the numbers of sentences or words differ.
    """
    correct = predicted_count = gold_count = 0
    for number, (predicted_tags, gold_tags) in enumerate(zip(predicted, gold, strict=True), 1):
        if len(predicted_tags) != len(gold_tags):
            raise ValueError(
                f"sentence {number}: {len(predicted_tags)} predicted tags for "
                f"{len(gold_tags)} words; expected one for each word"
            )
        predicted_chunks, gold_chunks = (
            find_chunks(predicted_tags, raw),
            find_chunks(gold_tags, raw),
        )
        correct += len(set(predicted_chunks) & set(gold_chunks))
        predicted_count += len(predicted_chunks)
        gold_count += len(gold_chunks)
    return f1_scores(correct, predicted_count, gold_count)


def pair_scores(predicted: Iterable[Hashable], gold: Iterable[Hashable]) -> ShareScores:
    """Scores predicted pairs (usually pairs of ids) against gold pairs. Duplicates count once."""
    predicted_pairs, gold_pairs = set(predicted), set(gold)
    return f1_scores(len(predicted_pairs & gold_pairs), len(predicted_pairs), len(gold_pairs))


def best_threshold(scores: np.ndarray, is_gold: np.ndarray, gold: int) -> float:
    """Returns the threshold with the best F1 for selecting candidates by score.

    All candidates with at least this score are selected. The threshold is halfway between the
    lowest selected score and the next lower score, as in XTREME's script for BUCC. It is the lowest
    score if all candidates are selected. If several thresholds have the best F1, the highest is
    returned. If no candidate is a gold pair, the threshold is infinite.

    Unlike XTREME's script, this function never considers a cut between equal scores. (The script
    computes F1 for such a cut, but its threshold then selects all candidates with this score.)

    Args:
      scores: float [candidates], finite.
      is_gold: bool [candidates], whether each candidate is a gold pair.
      gold: the number of gold pairs, including gold pairs that are not candidates.

    Raises:
      ValueError: if the shapes differ, a score is not finite, or there are more gold candidates
        than gold pairs.
    """
    scores, is_gold = np.asarray(scores, np.float64), np.asarray(is_gold, bool)
    if scores.shape != is_gold.shape or scores.ndim != 1:
        raise ValueError(
            f"scores has shape {scores.shape} and is_gold {is_gold.shape}; expected [candidates]"
        )
    if not np.isfinite(scores).all():
        raise ValueError("a score is not finite; expected finite scores")
    if is_gold.sum() > gold:
        raise ValueError(
            f"{is_gold.sum()} candidates are gold pairs, but gold={gold}; expected at "
            "least as many gold pairs"
        )
    if not is_gold.any():
        return float("inf")
    order = np.argsort(-scores, kind="stable")
    scores, is_gold = scores[order], is_gold[order]
    # F1 = 2 correct / (selected + gold). A cut is possible only where the next score is lower.
    f1s = 2 * np.cumsum(is_gold) / (np.arange(1, len(scores) + 1) + gold)
    f1s[:-1][scores[:-1] == scores[1:]] = -1
    last = int(f1s.argmax())
    return float(scores[last:][:2].mean())


def ranking_scores(
    run: Mapping[str, Mapping[str, float]],
    judgements: Mapping[str, Mapping[str, int]],
    cutoffs: Sequence[int],
) -> dict[str, dict[str, float]]:
    """Scores ranked documents as trec_eval does.

    `ndcg@k` discounts grades by log2(rank + 1), and divides by the value of the best ranking.
    `mrr@k` is 1 / rank of the first relevant document, 0 below rank k. `recall@k` is the share of
    the relevant documents at rank k or above. Documents of equal scores, as float32, are in
    descending order of ids. A document without a judgement, or with a grade below 1, is not
    relevant.

    Args:
      run: the scores of documents: by id of the query, by id of the document.
      judgements: the grades of documents, in the same form.
      cutoffs: the ranks k; lists may be shorter.

    Returns:
      The scores by query and name, for the queries that `run` and `judgements` share.
    """
    shared = [query for query in run if query in judgements]
    return {query: _list_scores(run[query], judgements[query], cutoffs) for query in shared}


def mean_scores(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Returns the mean of each score of `ranking_scores` over the queries, of which there must be
    at least one."""
    names = next(iter(scores.values()))
    return {name: float(np.mean([each[name] for each in scores.values()])) for name in names}


def _list_scores(
    found: Mapping[str, float], grades: Mapping[str, int], cutoffs: Sequence[int]
) -> dict[str, float]:
    names = sorted(found, key=lambda name: (np.float32(found[name]), name), reverse=True)
    gains = np.array([max(grades.get(name, 0), 0) for name in names])
    ideal = np.sort([grade for grade in grades.values() if grade > 0])[::-1]
    first = next((rank for rank, gain in enumerate(gains, 1) if gain), np.inf)
    scores = {}
    for k in cutoffs:
        scores[f"ndcg@{k}"] = _gain(gains[:k]) / max(_gain(ideal[:k]), 1)
        scores[f"mrr@{k}"] = 1 / first if first <= k else 0.0
        scores[f"recall@{k}"] = int((gains[:k] > 0).sum()) / max(len(ideal), 1)
    return scores


def _gain(grades: np.ndarray) -> float:
    """Computes the discounted cumulative gain of the documents of a ranking."""
    return float((grades / np.log2(np.arange(len(grades)) + 2)).sum())


def pearson(predicted: Sequence[float], gold: Sequence[float]) -> float:
    """Computes Pearson's linear correlation, from -1 to 1.

    It is 0 if all predictions are equal, or if all gold scores are equal.

    Raises:
      ValueError: if the arguments differ in length, or have fewer than two scores.
    """
    if len(predicted) != len(gold) or len(gold) < 2:
        raise ValueError(
            f"{len(predicted)} predictions for {len(gold)} gold scores; expected equal numbers, at "
            "least 2"
        )
    first, second = (np.asarray(side, np.float64) - np.mean(side) for side in (predicted, gold))
    product = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / product if product > 0 else 0.0


def spearman(predicted: Sequence[float], gold: Sequence[float]) -> float:
    """Computes Spearman's correlation of ranks, from -1 to 1. Equal scores get their mean rank.

    Raises:
      ValueError: if the arguments differ in length, or have fewer than two scores.
    """
    return pearson(_mean_ranks(predicted), _mean_ranks(gold))


def _mean_ranks(values: Sequence[float]) -> list[float]:
    _, which, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ranks: list[float] = (np.cumsum(counts) - (counts + 1) / 2)[which].tolist()
    return ranks


_ARTICLES = {
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    "ar": "ال",  # anywhere in a word; the other branch of MLQA's pattern never matches
}
_HAN = re.compile(r"([\u4e00-\u9fa5])")


class AnswerScores(NamedTuple):
    """Means over all questions, between 0 and 1."""

    exact_match: float
    f1: float


def normalise_squad(answer: str) -> str:
    """Normalises an answer as SQuAD 1.1 does (Rajpurkar et al., 2016).

    The result is in lower case, without ASCII punctuation and without English articles. XQuAD and
    TyDiQA-GoldP use this function for all languages.
    """
    text = "".join(c for c in answer.lower() if c not in string.punctuation)
    return " ".join(re.sub(_ARTICLES["en"], " ", text).split())


def normalise_mlqa(answer: str, language: str) -> str:
    """Normalises an answer as MLQA does (Lewis et al., 2020, and its released script).

    The result is in lower case, without Unicode punctuation and without the articles of the
    language. In Chinese, each Han character is a word.

    Args:
      language: the language of the answer and its context. Articles are removed in Arabic, English,
        German, Spanish and Vietnamese only. MLQA removes none in Hindi and Chinese. In languages
        outside MLQA, removing none is our choice.
    """
    letters = (c for c in answer.lower() if c not in string.punctuation)
    text = "".join(c for c in letters if not unicodedata.category(c).startswith("P"))
    language = language_of(language)
    if language in _ARTICLES:
        text = re.sub(_ARTICLES[language], " ", text)
    if language == "zh":
        text = _HAN.sub(r" \1 ", text)
    return " ".join(text.split())


def answer_scores(
    answers: Mapping[str, str],
    questions: Sequence[tuple[str, Iterable[str]]],
    normalise: Callable[[str], str] = normalise_squad,
) -> AnswerScores:
    """Scores each predicted answer against the gold answer with the highest score.

    A question without a predicted answer scores 0. F1 compares the multisets of words. As in SQuAD
    1.1, F1 is 0 if normalisation leaves no words, even if it leaves none in both answers.

    Args:
      answers: predicted answers by question id.
      questions: question ids, each with its gold answers.
      normalise: function that is applied to all answers before they are compared.

    Raises:
      ValueError: if there are no questions, or a question has no gold answers.
    """
    if not questions:
        raise ValueError("there are no questions")
    exact = overlap = 0.0
    for identity, golds in questions:
        normalised_golds = [normalise(gold) for gold in golds]
        if not normalised_golds:
            raise ValueError(f"question {identity!r} has no gold answer")
        if identity in answers:
            answer = normalise(answers[identity])
            exact += answer in normalised_golds
            overlap += max(_overlap(answer.split(), gold.split()) for gold in normalised_golds)
    return AnswerScores(exact / len(questions), overlap / len(questions))


def _overlap(answer: list[str], gold: list[str]) -> float:
    common = (Counter(answer) & Counter(gold)).total()
    return f1_scores(common, len(answer), len(gold)).f1
