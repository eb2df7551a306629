"""Finds answers to questions from the logits of the answers' first and last tokens."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlj.data.labelled.examples import Question
from xlj.data.labelled.windows import Windows


class Best(NamedTuple):
    """The best span of each question, over all windows of the question.

    Attributes:
      tokens: the first and the last token of the span, as indices in `Windows.spans`, int64
        [questions, 2]; (-1, -1) if the context has no token.
      scores: the sum of the span's start logit and end logit, float64 [questions]; -inf without a
        span.
      nulls: the sum of the two logits of `<s>`, float64 [questions]. It is the smallest sum over
        all windows.
    """

    tokens: np.ndarray
    scores: np.ndarray
    nulls: np.ndarray


def best(windows: Windows, starts: np.ndarray, ends: np.ndarray, answer_length: int) -> Best:
    """Finds spans with the highest sum of two logits (Devlin et al., 2019, section 4.2 and 4.3).

    A span begins at a token that the window owns (`Windows.owned`), and ends in the window's
    context. It has at most `answer_length` tokens. Its first and its last token each represent at
    least one character. Among spans with equal sums, the function returns the one that begins
    first, and among these the shortest.

    Args:
      windows: the windows.
      starts, ends: logits of first and last tokens, float [windows, length].
      answer_length: maximum number of tokens of a span.

    Raises:
      ValueError: if the shapes do not match the windows, or a logit of a context or of `<s>` is not
        finite.
    """
    if not starts.shape == ends.shape == windows.rows.shape:
        raise ValueError(
            f"logits {starts.shape} and {ends.shape} do not match windows {windows.rows.shape}"
        )
    position = np.arange(starts.shape[1])
    inside, owned = (
        (part[:, :1] <= position) & (position < part[:, 1:])
        for part in (windows.contexts, windows.owned)
    )
    for logits in (starts, ends):
        if not (np.isfinite(logits[inside]).all() and np.isfinite(logits[:, 0]).all()):
            raise ValueError("logits of a context or of <s> are not finite")
    token = (windows.tokens - windows.contexts[:, 0])[:, None] + position
    has_characters = np.zeros_like(inside)
    has_characters[inside] = (windows.spans[:, 0] < windows.spans[:, 1])[token[inside]]

    # In float64, sums of two float32 numbers are (almost) exact, so equal sums remain equal.
    last = np.where(has_characters, ends, -np.inf)
    best_ends = _maximum_ahead(last, answer_length)
    sums = np.where(has_characters & owned, starts, -np.inf).astype(np.float64) + best_ends
    first = sums.argmax(1)
    highest = np.take_along_axis(sums, first[:, None], 1)[:, 0]

    count = int(windows.questions.max(initial=-1)) + 1
    scores, nulls = np.full(count, -np.inf), np.full(count, np.inf)
    np.maximum.at(scores, windows.questions, highest)
    np.minimum.at(nulls, windows.questions, starts[:, 0].astype(np.float64) + ends[:, 0])
    # Of the windows with the best score, choose the first: its tokens come first in the context.
    is_best = np.flatnonzero(highest == scores[windows.questions])
    chosen = is_best[np.flatnonzero(np.diff(windows.questions[is_best], prepend=-1))]
    first = first[chosen]
    end_positions = np.minimum(first[:, None] + np.arange(answer_length), starts.shape[1] - 1)
    additional = last[chosen[:, None], end_positions].argmax(1)
    tokens = token[chosen, first][:, None] + np.stack([np.zeros_like(additional), additional], 1)
    return Best(np.where(np.isfinite(scores)[:, None], tokens, -1), scores, nulls)


def texts(
    questions: Sequence[Question],
    windows: Windows,
    starts: np.ndarray,
    ends: np.ndarray,
    *,
    answer_length: int,
    no_answer: float | None = None,
) -> dict[str, str]:
    """Returns the answer to each question, as a substring of the context, by the question's
    identity.

    Args:
      questions: the questions of the windows.
      windows, starts, ends, answer_length: the arguments of `best`.
      no_answer: a threshold, which SQuAD 2.0 tunes on dev. The answer is empty if the score of
        `<s>` (`Best.nulls`) exceeds the score of the best span by more than this threshold. With
        None, the answer is only empty if the context has no token.

    Raises:
      ValueError: if the shapes, windows and questions do not match, a logit is not finite, or two
        questions have the same identity.
    """
    spans = best(windows, starts, ends, answer_length)
    if len(questions) != len(spans.scores):
        raise ValueError(
            f"there are {len(questions)} questions, but the windows belong to "
            f"{len(spans.scores)} questions"
        )
    if len({question.identity for question in questions}) < len(questions):
        raise ValueError("two questions have the same identity; make identities unique")
    has_answer = spans.tokens[:, 0] >= 0
    if no_answer is not None:
        has_answer &= spans.nulls <= spans.scores + no_answer
    answers = {}
    for question, has, (first, last) in zip(questions, has_answer, spans.tokens, strict=True):
        text = question.context[windows.spans[first, 0] : windows.spans[last, 1]] if has else ""
        answers[question.identity] = text
    return answers


def _maximum_ahead(values: np.ndarray, width: int) -> np.ndarray:
    """Computes `values[:, i : i + width].max(1)` for every i.

    Each pass doubles the width.
    """
    seen, reached = 1, values.copy()
    while seen < width:
        step = min(seen, width - seen)
        reached[:, :-step] = np.maximum(reached[:, :-step], reached[:, step:])
        seen += step
    return reached
