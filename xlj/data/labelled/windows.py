"""Converts questions to rows: windows of the context, each after the whole question."""

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
    """Rows `<s> question </s> part of the context </s>`, and what is needed to read answers.

    Positions are columns of a row; intervals exclude their end. Every question has a window, even
    if it or its context is empty.

    Attributes:
      rows: [windows, length] of the vocabulary's type, padded with `<pad>`.
      questions: index of the question of each window, int64 [windows], non-decreasing.
      contexts: the positions of the part of the context, int64 [windows, 2].
      owned: the positions of tokens with more context in this window than in others, int64
        [windows, 2]. Each token of a context is owned by one window; an answer is searched in the
        window that owns its first token (Devlin et al., 2019, run_squad.py: "max context").
      tokens: the index in `spans` of the token at `contexts[:, 0]`, int64 [windows].
      spans: the characters of each token of each context, in that context, int32 [tokens, 2].
      answers: the positions of the answer's first and last token, int32 [windows, 2]; (0, 0), which
        is `<s>`, if the window does not contain the whole answer.
      cut_questions: number of truncated questions.
      lost_answers: number of answers that are in no window: too long, or without tokens.
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
    """Cuts all questions into windows, in the order of the context of each question.

    A window is as long as its question allows. The first of several answers is trained on, as with
    SQuAD. An answer has the tokens of all its characters, so it may begin inside its first token.

    Args:
      length: tokens of a row.
      stride: number of tokens that two windows share. Answers of up to half of it are always in a
        window; longer answers may be lost if they cross the border of two windows.
      question_length: the most tokens of a question; the rest is truncated.

    Raises:
      ConfigError: if the windows would not advance.
    """
    _check_room(length, stride, question_length)
    encoded_questions = vocabulary.encode([question.question for question in questions])
    sizes = np.minimum(encoded_questions.lengths, question_length)
    texts = list(dict.fromkeys(question.context for question in questions))
    numbers = {text: number for number, text in enumerate(texts)}
    context = np.array([numbers[question.context] for question in questions], np.int64)
    encoded, spans = vocabulary.encode_with_spans(texts)

    owner, first, after = _cut(encoded.lengths[context], length - 3 - sizes, stride)
    owned = _owned(owner, first, after)
    begin = sizes[owner] + 2
    shift = begin - first  # from tokens of a context to positions
    tokens = encoded.starts[context][owner] + first
    rows = np.full((len(owner), length), PAD, vocabulary.dtype)
    flat, base = rows.reshape(-1), np.arange(len(rows)) * length
    flat[base] = BOS
    flat[base + begin - 1] = EOS
    flat[base + after + shift] = EOS
    copy_runs(encoded_questions.ids, encoded_questions.starts[owner], flat, base + 1, sizes[owner])
    copy_runs(encoded.ids, tokens, flat, base + begin, after - first)

    answers = _answer_tokens(questions, context, texts, encoded.lengths, spans)[owner]
    contains = (answers[:, 0] >= first) & (answers[:, 1] < after)
    answered = np.array([bool(question.answers) for question in questions], bool)
    has_window = np.bincount(owner[contains], minlength=len(questions)) > 0
    return Windows(
        rows=rows,
        questions=owner,
        contexts=np.stack([begin, after + shift], 1),
        owned=owned + shift[:, None],
        tokens=tokens,
        spans=spans,
        answers=np.where(contains[:, None], answers + shift[:, None], 0).astype(np.int32),
        cut_questions=int((encoded_questions.lengths > question_length).sum()),
        lost_answers=int((answered & ~has_window).sum()),
    )


def _check_room(length: int, stride: int, question_length: int) -> None:
    least = length - 3 - question_length
    if least <= stride:
        raise ConfigError(
            f"task.length={length} leaves {max(0, least)} tokens for the context, after <s>, two "
            f"</s> and a question of task.question_length={question_length}; it must leave more "
            f"than task.stride={stride} tokens, which two windows share"
        )


def _cut(
    total: np.ndarray, room: np.ndarray, stride: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cuts contexts into windows.

    Args:
      total, room: tokens of the context, and tokens of it that fit in a window, by question.

    Returns:
      By window: its question, the first token of the context in it, and the token after the last.
    """
    count = 1 + np.maximum(0, -((room - total) // (room - stride)))
    owner = np.repeat(np.arange(len(total)), count)
    turn = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    first = turn * (room - stride)[owner]
    return owner, first, np.minimum(first + room[owner], total[owner])


def _owned(owner: np.ndarray, first: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Returns the tokens that each window owns, [windows, 2].

    Two windows divide their shared tokens in the middle, where both have equal context.
    """
    middle = (first[1:] + after[:-1] + 1) // 2
    overlaps = owner[1:] == owner[:-1]
    owned = np.stack([first, after], 1)
    owned[1:, 0][overlaps] = owned[:-1, 1][overlaps] = middle[overlaps]
    return owned


def _answer_tokens(
    questions: Sequence[Question],
    context: np.ndarray,
    texts: Sequence[str],
    lengths: np.ndarray,
    spans: np.ndarray,
) -> np.ndarray:
    """Returns the first and last token of the context that overlap the first answer.

    int64 [questions, 2]; (-1, -1) if there are none.
    """
    characters = np.zeros((len(questions), 2), np.int64)  # empty if there is no answer
    for i, question in enumerate(questions):
        if question.answers:
            text, start = question.answers[0]
            begin = start + len(text) - len(text.lstrip())
            characters[i] = begin, begin + len(text.strip())

    # Contexts are concatenated, with one character between them, so that spans do not touch.
    sizes = np.fromiter(map(len, texts), np.int64, len(texts)) + 1
    starts = np.cumsum(sizes) - sizes
    solid = np.flatnonzero(spans[:, 0] < spans[:, 1])
    begins, ends = (spans + np.repeat(starts, lengths)[:, None])[solid].T
    begin, end = (characters + starts[context][:, None]).T
    first = np.searchsorted(ends, begin, "right")
    last = np.searchsorted(begins, end, "left") - 1
    has_tokens = first <= last
    token = solid[np.stack([first, last], 1)[has_tokens]]
    result = np.full((len(questions), 2), -1, np.int64)
    result[has_tokens] = token - (np.cumsum(lengths) - lengths)[context[has_tokens]][:, None]
    return result
