"""Answers to questions, from the logits of their first and last tokens."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlj.data.labelled.examples import Question
from xlj.data.labelled.windows import Windows


class Best(NamedTuple):
    """The best span of each question, over all of its windows.

    Attributes:
      tokens: its first and last token, as indices in `Windows.spans`, int64 [questions, 2]; (-1,
        -1) where the context has no token.
      scores: the sum of its two logits, float64 [questions]; -inf where there is none.
      nulls: that of `<s>`, in the window where it is least, float64 [questions].
    """

    tokens: np.ndarray
    scores: np.ndarray
    nulls: np.ndarray


def best(windows: Windows, starts: np.ndarray, ends: np.ndarray, answer_length: int) -> Best:
    """Spans with the highest sum of two logits (Devlin et al., 2019, section 4.2 and 4.3).

    A span begins at a token that its window owns, does not leave the window's context, and has at
    most `answer_length` tokens; its first and last token stand for a character at least. Of equals
    the first to begin, then the shortest is taken.

    Args:
      starts, ends: logits of first and last tokens, float [windows, length].

    Raises:
      ValueError: if they do not fit the windows, or one that is read is not finite.
    """
    if not starts.shape == ends.shape == windows.rows.shape:
        raise ValueError(
            f"logits {starts.shape} and {ends.shape} of windows {windows.rows.shape} do not fit"
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

    # In float64 sums of two float32 are exact, or nearly so: equals stay equals.
    last = np.where(solid, ends, -np.inf)
    sums = np.where(solid & owned, starts, -np.inf).astype(np.float64) + _ahead(last, answer_length)
    first = sums.argmax(1)
    highest = np.take_along_axis(sums, first[:, None], 1)[:, 0]

    count = int(windows.questions.max(initial=-1)) + 1
    scores, nulls = np.full(count, -np.inf), np.full(count, np.inf)
    np.maximum.at(scores, windows.questions, highest)
    np.minimum.at(nulls, windows.questions, starts[:, 0].astype(np.float64) + ends[:, 0])
    # The first window of those that have it; what it owns comes before what the next one does.
    having = np.flatnonzero(highest == scores[windows.questions])
    chosen = having[np.flatnonzero(np.diff(windows.questions[having], prepend=-1))]
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
    """The answer to each question, by its identity: the context's own characters.

    Args:
      questions: those that the windows were made of; all else is as in `best`.
      no_answer: "" is the answer where that of `<s>` beats the best span by more than this
        (SQuAD 2.0; a threshold found on dev). None means that there is always an answer, unless the
        context has no token.

    Raises:
      ValueError: as `best`, if these are not the questions, or if two have the same identity.
    """
    found = best(windows, starts, ends, answer_length)
    if len(questions) != len(found.scores):
        raise ValueError(f"{len(questions)} questions, but windows of {len(found.scores)}")
    if len({question.identity for question in questions}) < len(questions):
        raise ValueError("two questions have the same identity")
    given = found.tokens[:, 0] >= 0
    if no_answer is not None:
        given &= found.nulls <= found.scores + no_answer
    answers = {}
    for question, has, (first, last) in zip(questions, given, found.tokens, strict=True):
        text = question.context[windows.spans[first, 0] : windows.spans[last, 1]] if has else ""
        answers[question.identity] = text
    return answers


def _ahead(values: np.ndarray, width: int) -> np.ndarray:
    """`values[:, i : i + width].max(1)` of every i; what has been seen doubles with each pass."""
    seen, reached = 1, values.copy()
    while seen < width:
        step = min(seen, width - seen)
        reached[:, :-step] = np.maximum(reached[:, :-step], reached[:, step:])
        seen += step
    return reached
