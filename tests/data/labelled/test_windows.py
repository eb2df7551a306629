"""Windows of long contexts equal those of plain loops, and answers keep their characters."""

import dataclasses
import io
import itertools

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st

from xlj import phrasebook
from xlj.config import ConfigError
from xlj.data.labelled import windows
from xlj.data.labelled.examples import Question
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.data.tokenizer.vocabulary import Vocabulary

LINES = list(itertools.islice(filter(None, phrasebook.text_lines("en")), 1500))
SIZES = {"length": 40, "stride": 9, "question_length": 12}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, vocab_size=300, minloglevel=2
    )
    return Vocabulary(model.getvalue())


def ask(context="", question="", *answers, identity="") -> Question:
    answers_with_starts = tuple((answer, context.index(answer)) for answer in answers)
    return Question(identity, question, context, answers_with_starts, "")


SENTENCES = st.sampled_from(LINES[:200]) | st.text("ab ½é漢\u3000\2", max_size=9)
CONTEXTS = st.lists(SENTENCES, max_size=9).map("  ".join)


@st.composite
def question_lists(draw):
    """Draws questions about one to three contexts; an answer is any part of its context, if any."""
    contexts, questions = draw(st.lists(CONTEXTS, min_size=1, max_size=3)), []
    for _ in range(draw(st.integers(0, 5))):
        context, question = draw(st.sampled_from(contexts)), draw(SENTENCES)
        begin = draw(st.integers(0, len(context)))
        answer = context[begin : begin + draw(st.sampled_from([2, 5, 20, 60, 200]))]
        answers = ((answer, begin),) if answer.strip() and draw(st.integers(0, 9)) else ()
        questions.append(Question("", question, context, answers, ""))
    return questions


LONG = [
    ask("  ".join(LINES[n : n + 12]), LINES[n], " ".join(LINES[n + k].split()[:k]))
    for n in range(0, 120, 12)
    for k in range(12)
]


def windows_by_loop(question, vocabulary, length, stride, question_length):
    """Yields (row, answer, contexts, owned) of each window, with plain loops."""
    question_ids = vocabulary.encode([question.question]).ids[:question_length].tolist()
    encoded, spans = vocabulary.encode_with_spans([question.context])
    tokens = encoded.ids.tolist()
    capacity = length - 3 - len(question_ids)
    window_starts = [0]
    while window_starts[-1] + capacity < len(tokens):
        window_starts.append(window_starts[-1] + capacity - stride)
    parts = [range(first, min(first + capacity, len(tokens))) for first in window_starts]
    answer_tokens = []
    if question.answers:
        text, start = question.answers[0]
        answer_characters = {start + i for i, c in enumerate(text) if not c.isspace()}
        answer_tokens = [
            t for t, span in enumerate(spans.tolist()) if answer_characters & set(range(*span))
        ]
    for part in parts:
        row = [BOS, *question_ids, EOS, *(tokens[t] for t in part), EOS]
        begin = len(question_ids) + 2
        shift = begin - part.start
        has_answer = answer_tokens and answer_tokens[0] in part and answer_tokens[-1] in part
        # BERT's rule: the first window in which the shorter side of the token is longest.
        owner = [
            max((q for q in parts if t in q), key=lambda q: min(t - q.start, q.stop - 1 - t))
            for t in part
        ]
        owned = [t + shift for t, best in zip(part, owner, strict=True) if best == part]
        yield (
            row + [PAD] * (length - len(row)),
            [answer_tokens[0] + shift, answer_tokens[-1] + shift] if has_answer else [0, 0],
            [begin, begin + len(part)],
            owned,
        )


@given(questions=question_lists(), stride=st.integers(0, 24))
@example(questions=LONG, stride=0)
@example(questions=LONG, stride=9)
@example(questions=LONG, stride=20)
def test_windows_equal_those_of_a_loop(vocabulary, questions, stride):
    sizes = {**SIZES, "stride": stride}
    actual = windows.make(questions, vocabulary, **sizes)
    expected = [
        (i, *window)
        for i, question in enumerate(questions)
        for window in windows_by_loop(question, vocabulary, **sizes)
    ]
    indices, rows, answers, contexts, owned = zip(*expected, strict=True) if expected else [()] * 5
    assert actual.questions.tolist() == list(indices)
    assert actual.rows.tolist() == list(rows) and actual.rows.dtype == vocabulary.dtype
    assert actual.answers.tolist() == list(answers) and actual.answers.dtype == np.int32
    assert actual.contexts.tolist() == list(contexts)
    assert [list(range(*interval)) for interval in actual.owned.tolist()] == list(owned)
    lost = {i for i, question in enumerate(questions) if question.answers}
    lost -= {i for i, answer in zip(indices, answers, strict=True) if answer != [0, 0]}
    assert actual.lost_answers == len(lost)
    too_long = (vocabulary.encode([q.question for q in questions]).lengths > 12).sum()
    assert actual.cut_questions == too_long


@given(questions=question_lists())
@example(questions=LONG)
def test_every_token_is_owned_by_one_window_and_has_its_span(vocabulary, questions):
    actual = windows.make(questions, vocabulary, **SIZES)
    for i, question in enumerate(questions):
        encoded, spans = vocabulary.encode_with_spans([question.context])
        ids, characters = [], []
        for w in np.flatnonzero(actual.questions == i):
            (begin, _), owned = actual.contexts[w], actual.owned[w]
            ids += actual.rows[w, slice(*owned)].tolist()
            characters += actual.spans[slice(*(actual.tokens[w] + owned - begin))].tolist()
        assert ids == encoded.ids.tolist() and characters == spans.tolist()


def test_an_answer_includes_all_tokens_that_it_overlaps(vocabulary):
    context = f"{LINES[0]} unforgettable  mountains. {LINES[1]}"
    for answer in ("forgettable  mount", " unforgettable ", "gett", "mountains", "."):
        actual = windows.make([ask(context, "", answer)], vocabulary, **SIZES | {"length": 200})
        first, last = actual.tokens[0] + actual.answers[0] - actual.contexts[0, 0]
        begin, end = actual.spans[first, 0], actual.spans[last, 1]
        at = context.index(answer.strip())
        assert begin <= at and at + len(answer.strip()) <= end
        assert actual.spans[first, 1] > at and actual.spans[last, 0] < at + len(answer.strip())


def test_training_uses_the_first_of_several_answers(vocabulary):
    question = ask(LINES[0], "", *reversed(LINES[0].split()))
    actual = windows.make([question], vocabulary, **SIZES)
    only = windows.make([ask(LINES[0], "", LINES[0].split()[-1])], vocabulary, **SIZES)
    assert actual.answers.tolist() == only.answers.tolist() != [[0, 0]]


def test_answers_that_no_window_contains_are_counted(vocabulary):
    long = " ".join(LINES[:5])
    questions = [
        ask(long, "", long),
        ask(long),
        ask("a \2", "", "\2"),
        ask("a b", "", "b"),
    ]
    actual = windows.make(questions, vocabulary, **SIZES)
    assert actual.lost_answers == 2  # the long answer, and the control character
    assert not actual.answers[actual.questions < 3].any() and actual.answers[-1].all()


def test_empty_texts_have_a_window(vocabulary):
    actual = windows.make([ask(), ask("", "b"), ask("a", "")], vocabulary, **SIZES)
    a, b = vocabulary.encode(["a"]).ids.tolist(), vocabulary.encode(["b"]).ids.tolist()
    rows = [[0, 2, 2], [0, *b, 2, 2], [0, 2, *a, 2]]
    assert actual.rows.tolist() == [row + [PAD] * (40 - len(row)) for row in rows]
    assert actual.questions.tolist() == [0, 1, 2] and not actual.answers.any()
    empty = windows.make([], vocabulary, **SIZES)
    assert empty.rows.shape == (0, 40) and empty.spans.shape == (0, 2)
    assert {len(getattr(empty, f.name)) for f in dataclasses.fields(empty)[:-2]} == {0}


def test_windows_that_would_not_advance_are_refused(vocabulary):
    message = r"task\.length=40 leaves 25 tokens .*question_length=12; .* more than task\.stride=25"
    with pytest.raises(ConfigError, match=message):
        windows.make([ask("a")], vocabulary, **SIZES | {"stride": 25})
    windows.make([ask("a")], vocabulary, **SIZES | {"stride": 24})
