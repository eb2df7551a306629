"""Converts questions to rows: each row has the question and a window of its context."""

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
    """Windows: rows `<s> question </s> part of the context </s>`, and data to read answers.

    Positions are columns of a row. Intervals are [start, end), without the end. Every question has
    at least one window, even if the question or its context is empty.

    Attributes:
      rows: token ids, [windows, length], of the vocabulary's type, padded with `<pad>`.
      questions: index of the question of each window, int64 [windows], non-decreasing.
      contexts: interval of positions of the part of the context, int64 [windows, 2].
      owned: interval of positions of the tokens that the window owns, int64 [windows, 2]. A token
        is owned by the window in which it has the most context, so each token of a context has one
        owner. An answer is read from the window that owns its first token (Devlin et al., 2019,
        run_squad.py: "max context").
      tokens: the index in `spans` of the token at `contexts[:, 0]`, int64 [windows].
      spans: start and end of each token of each distinct context, in characters of the context,
        int32 [tokens, 2].
      answers: the positions of the first and last token of the answer, int32 [windows, 2]; (0, 0),
        the position of `<s>`, if the window does not contain the whole answer.
      cut_questions: number of truncated questions.
      lost_answers: number of answers that no window contains, because they are too long or have no
        tokens.
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
    """Cuts the contexts of questions into windows.

    The windows of a question follow each other in the order of its context. They contain as many
    tokens of the context as the question leaves room for. If a question has several answers, the
    first answer is the label, as is usual for SQuAD. The tokens of an answer are all tokens that
    contain a character of the answer, so an answer may begin inside its first token.

    Args:
      questions: the questions, with their contexts and answers.
      length: number of tokens of a row.
      stride: number of tokens that two consecutive windows share. If an answer has at most half of
        this number of tokens, the window that owns its first token contains the whole answer. The
        model may miss a longer answer at the border of two windows.
      question_length: maximum number of tokens of a question; further tokens are dropped.

    Raises:
      ConfigError: if a window would have at most `stride` tokens of the context.
    """
    _check_lengths(length, stride, question_length)
    encoded_questions = vocabulary.encode([question.question for question in questions])
    sizes = np.minimum(encoded_questions.lengths, question_length)
    texts = list(dict.fromkeys(question.context for question in questions))
    numbers = {text: number for number, text in enumerate(texts)}
    context = np.array([numbers[question.context] for question in questions], np.int64)
    encoded, spans = vocabulary.encode_with_spans(texts)

    # All arrays of the windows are [windows]; `first` and `after` index tokens of a context.
    owner, first, after = _cut_contexts(encoded.lengths[context], length - 3 - sizes, stride)
    owned = _divide_tokens(owner, first, after)
    begin = sizes[owner] + 2
    shift = begin - first  # added to a token of the context, it gives the position in the row
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


def _check_lengths(length: int, stride: int, question_length: int) -> None:
    room = length - 3 - question_length
    if room <= stride:
        raise ConfigError(
            f"task.length={length} leaves {max(0, room)} tokens for the context, after <s>, two "
            f"</s> and a question of task.question_length={question_length}; it must leave more "
            f"than task.stride={stride} tokens, which two windows share; raise task.length or "
            "lower task.stride"
        )


def _cut_contexts(
    total: np.ndarray, room: np.ndarray, stride: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cuts contexts into windows.

    Args:
      total: number of tokens of the context of each question, int64 [questions].
      room: number of tokens of the context that fit in a window, int64 [questions].
      stride: number of tokens that two consecutive windows share.

    Returns:
      Three arrays, int64 [windows]: the question of each window, the first token of the context in
      the window, and the token after the last token in the window.
    """
    count = 1 + np.maximum(0, -((room - total) // (room - stride)))
    owner = np.repeat(np.arange(len(total)), count)
    number = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    first = number * (room - stride)[owner]
    return owner, first, np.minimum(first + room[owner], total[owner])


def _divide_tokens(owner: np.ndarray, first: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Returns the interval of tokens of the context that each window owns, [windows, 2].

    Two consecutive windows divide the tokens that they share in the middle, where a token has
    equal context in both windows.

    Args:
      owner, first, after: the arrays that `_cut_contexts` returns.
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
    """Returns the first and the last token of the context that overlap the first answer.

    Args:
      questions: the questions.
      context: index in `texts` of the context of each question, int64 [questions].
      texts: the distinct contexts.
      lengths: number of tokens of each text, int64 [texts].
      spans: start and end of each token, in characters of its text, int32 [tokens, 2].

    Returns:
      Indices of tokens within the context, int64 [questions, 2]; (-1, -1) if the question has no
      answer or no token overlaps the answer.
    """
    characters = np.zeros((len(questions), 2), np.int64)  # an empty interval without an answer
    for i, question in enumerate(questions):
        if question.answers:
            text, start = question.answers[0]
            begin = start + len(text) - len(text.lstrip())
            characters[i] = begin, begin + len(text.strip())

    # The texts are concatenated with one character between them, so that their spans never touch.
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
