"""Computes answers to questions from the logits of their first and last tokens."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlj.data.labelled.examples import Question
from xlj.data.labelled.windows import Windows


class Best(NamedTuple):
    """The best span of each question, over all its windows.

    Attributes:
      tokens: its first and last token, as indices in `Windows.spans`, int64 [questions, 2]; (-1,
        -1) if the context has no token.
      scores: the sum of its two logits, float64 [questions]; -inf if there is no span.
      nulls: the same sum for `<s>`, in the window where it is smallest, float64 [questions].
    """

    tokens: np.ndarray
    scores: np.ndarray
    nulls: np.ndarray


def best(windows: Windows, starts: np.ndarray, ends: np.ndarray, answer_length: int) -> Best:
    """Finds spans with the highest sum of two logits (Devlin et al., 2019, section 4.2 and 4.3).

    A span begins at a token that its window owns, stays within the window's context, and has at
    most `answer_length` tokens. Its first and last token represent at least one character. Of equal
    spans, the first to begin is chosen, then the shortest.

    Args:
      starts, ends: logits of first and last tokens, float [windows, length].

    Raises:
      ValueError: if shapes do not match the windows, or a logit that is used is not finite.
    """
    if not starts.shape == ends.shape == windows.rows.shape:
        raise ValueError(
            f"logits {starts.shape} and {ends.shape} do not match windows {windows.rows.shape}"
        )
    place = np.arange(starts.shape[1])
    inside, owned = (
        (part[:, :1] <= place) & (place < part[:, 1:]) for part in (windows.contexts, windows.owned)
    )
    for logits in (starts, ends):
        if not (np.isfinite(logits[inside]).all() and np.isfinite(logits[:, 0]).all()):
            raise ValueError("logits are not finite")
    token = (windows.tokens - windows.contexts[:, 0])[:, None] + place
    solid = np.zeros_like(inside)
    solid[inside] = (windows.spans[:, 0] < windows.spans[:, 1])[token[inside]]

    # In float64, sums of two float32 are exact, or nearly so; equal sums stay equal.
    last = np.where(solid, ends, -np.inf)
    tops = _maximum_ahead(last, answer_length)
    sums = np.where(solid & owned, starts, -np.inf).astype(np.float64) + tops
    first = sums.argmax(1)
    highest = np.take_along_axis(sums, first[:, None], 1)[:, 0]

    count = int(windows.questions.max(initial=-1)) + 1
    scores, nulls = np.full(count, -np.inf), np.full(count, np.inf)
    np.maximum.at(scores, windows.questions, highest)
    np.minimum.at(nulls, windows.questions, starts[:, 0].astype(np.float64) + ends[:, 0])
    # The first window with the best score; its owned tokens come before those of later windows.
    is_best = np.flatnonzero(highest == scores[windows.questions])
    chosen = is_best[np.flatnonzero(np.diff(windows.questions[is_best], prepend=-1))]
    first = first[chosen]
    reach = np.minimum(first[:, None] + np.arange(answer_length), starts.shape[1] - 1)
    more = last[chosen[:, None], reach].argmax(1)
    tokens = token[chosen, first][:, None] + np.stack([np.zeros_like(more), more], 1)
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
    """Returns the answer to each question, by its identity, as characters of the context.

    Args:
      questions: the questions of the windows; the other arguments are as in `best`.
      no_answer: the answer is "" if the score of `<s>` exceeds that of the best span by more than
        this (SQuAD 2.0; a threshold found on dev). None means that there is always an answer,
        unless the context has no token.

    Raises:
      ValueError: as `best`, if the questions do not match, or if two have the same identity.
    """
    spans = best(windows, starts, ends, answer_length)
    if len(questions) != len(spans.scores):
        raise ValueError(f"{len(questions)} questions, but windows of {len(spans.scores)}")
    if len({question.identity for question in questions}) < len(questions):
        raise ValueError("two questions have the same identity")
    has_answer = spans.tokens[:, 0] >= 0
    if no_answer is not None:
        has_answer &= spans.nulls <= spans.scores + no_answer
    answers = {}
    for question, has, (first, last) in zip(questions, has_answer, spans.tokens, strict=True):
        text = question.context[windows.spans[first, 0] : windows.spans[last, 1]] if has else ""
        answers[question.identity] = text
    return answers


def _maximum_ahead(values: np.ndarray, width: int) -> np.ndarray:
    """Computes `values[:, i : i + width].max(1)` for every i; each pass doubles the width."""
    seen, reached = 1, values.copy()
    while seen < width:
        step = min(seen, width - seen)
        reached[:, :-step] = np.maximum(reached[:, :-step], reached[:, step:])
        seen += step
    return reached
