"""Questions as rows: windows of the context, each behind the whole question."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlj.config import ConfigError
from xlj.data.labelled.examples import Question
from xlj.data.rows.packing import copy_runs
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.data.tokenizer.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Windows:
    """Rows `<s> question </s> part of the context </s>`, and what reads answers off them.

    Positions are those of a row; intervals leave out their end. Every question has a window, also
    where it or its context is empty.

    Attributes:
      rows: [windows, length] of the vocabulary's type, padded with `<pad>`.
      questions: whose window it is, int64 [windows], from 0, not decreasing.
      contexts: the positions of the context's part, int64 [windows, 2].
      owned: the tokens of it that have more context here than in other windows, int64 [windows, 2].
        Each token of a context is owned once; an answer is looked for in the window that owns its
        first token (Devlin et al., 2019, released run_squad.py: "max context").
      tokens: the index in `spans` of the token at `contexts[:, 0]`, int64 [windows].
      spans: the characters of each token of each context, in that context, int32 [tokens, 2].
      answers: the positions of the answer's first and last token, int32 [windows, 2]; (0, 0), that
        is `<s>`, where the window does not hold all of it.
      cut_questions: how many questions lost their end.
      lost_answers: how many answers are in no window: too long, or of characters without tokens.
    """

    rows: np.ndarray
    questions: np.ndarray
    contexts: np.ndarray
    owned: np.ndarray
    tokens: np.ndarray
    spans: np.ndarray
    answers: np.ndarray
    cut_questions: int
    lost_answers: int


def make(
    questions: Sequence[Question],
    vocabulary: Vocabulary,
    *,
    length: int,
    stride: int,
    question_length: int,
) -> Windows:
    """Windows of all questions, those of one in the order of its context; a `ConfigError` if they
    would not advance.

    A window is as long as its question allows. Of several answers the first is trained on, as with
    SQuAD; an answer has the tokens of all its characters, so it may begin inside of its first one.

    Args:
      length: tokens in a row.
      stride: tokens that two windows have in common. Up to half of it, answers are sure to be
        found; below, some that cross the border of two windows are lost.
      question_length: most tokens of a question; the rest is cut off.
    """
    _check_room(length, stride, question_length)
    asked = vocabulary.encode([question.question for question in questions])
    sizes = np.minimum(asked.lengths, question_length)
    texts = list(dict.fromkeys(question.context for question in questions))
    numbers = {text: number for number, text in enumerate(texts)}
    context = np.array([numbers[question.context] for question in questions], np.int64)
    encoded, spans = vocabulary.encode_with_spans(texts)

    whose, first, after = _cut(encoded.lengths[context], length - 3 - sizes, stride)
    owned = _owned(whose, first, after)
    begin = sizes[whose] + 2
    shift = begin - first  # from tokens of a context to positions
    tokens = encoded.starts[context][whose] + first
    rows = np.full((len(whose), length), PAD, vocabulary.dtype)
    flat, base = rows.reshape(-1), np.arange(len(rows)) * length
    flat[base] = BOS
    flat[base + begin - 1] = EOS
    flat[base + after + shift] = EOS
    copy_runs(asked.ids, asked.starts[whose], flat, base + 1, sizes[whose])
    copy_runs(encoded.ids, tokens, flat, base + begin, after - first)

    wanted = _wanted(questions, context, texts, encoded.lengths, spans)[whose]
    held = (wanted[:, 0] >= first) & (wanted[:, 1] < after)
    answered = np.array([bool(question.answers) for question in questions], bool)
    found = np.bincount(whose[held], minlength=len(questions)) > 0
    return Windows(
        rows=rows,
        questions=whose,
        contexts=np.stack([begin, after + shift], 1),
        owned=owned + shift[:, None],
        tokens=tokens,
        spans=spans,
        answers=np.where(held[:, None], wanted + shift[:, None], 0).astype(np.int32),
        cut_questions=int((asked.lengths > question_length).sum()),
        lost_answers=int((answered & ~found).sum()),
    )


def _check_room(length: int, stride: int, question_length: int) -> None:
    least = length - 3 - question_length
    if least <= stride:
        raise ConfigError(
            f"task.length {length}: beside <s>, two </s> and a question of task.question_length "
            f"{question_length} there is room for {max(0, least)} tokens of the context; that "
            f"must be more than the {stride} that two windows have in common (task.stride)"
        )


def _cut(
    total: np.ndarray, room: np.ndarray, stride: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The windows of contexts.

    Args:
      total, room: by question, the tokens of its context, and how many of them a window holds.

    Returns:
      By window, its question, and the tokens of the context that it holds, from the first one to
      that after the last.
    """
    count = 1 + np.maximum(0, -((room - total) // (room - stride)))
    whose = np.repeat(np.arange(len(total)), count)
    turn = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    first = turn * (room - stride)[whose]
    return whose, first, np.minimum(first + room[whose], total[whose])


def _owned(whose: np.ndarray, first: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The tokens that each window owns, [windows, 2], of those that it holds. Two windows part what
    they share in the middle, where a token has as much context in both."""
    middle = (first[1:] + after[:-1] + 1) // 2
    parted = whose[1:] == whose[:-1]
    owned = np.stack([first, after], 1)
    owned[1:, 0][parted] = owned[:-1, 1][parted] = middle[parted]
    return owned


def _wanted(
    questions: Sequence[Question],
    context: np.ndarray,
    texts: Sequence[str],
    lengths: np.ndarray,
    spans: np.ndarray,
) -> np.ndarray:
    """The first and last token of the context, of those that share a character with the first
    answer, int64 [questions, 2]; (-1, -1) where there is none."""
    characters = np.zeros((len(questions), 2), np.int64)  # no characters where there is no answer
    for i, question in enumerate(questions):
        if question.answers:
            text, start = question.answers[0]
            begin = start + len(text) - len(text.lstrip())
            characters[i] = begin, begin + len(text.strip())

    # All contexts end to end, each a character longer, so that nothing touches.
    sizes = np.fromiter(map(len, texts), np.int64, len(texts)) + 1
    starts = np.cumsum(sizes) - sizes
    solid = np.flatnonzero(spans[:, 0] < spans[:, 1])
    begins, ends = (spans + np.repeat(starts, lengths)[:, None])[solid].T
    begin, end = (characters + starts[context][:, None]).T
    first = np.searchsorted(ends, begin, "right")
    last = np.searchsorted(begins, end, "left") - 1
    there = first <= last
    token = solid[np.stack([first, last], 1)[there]]
    wanted = np.full((len(questions), 2), -1, np.int64)
    wanted[there] = token - (np.cumsum(lengths) - lengths)[context[there]][:, None]
    return wanted
