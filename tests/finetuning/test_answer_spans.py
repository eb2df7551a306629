"""The best span, compared with a search of all spans; and answers to logits and back."""

import gzip
import io
import itertools
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from xlj import phrasebook
from xlj.data.labelled import windows
from xlj.data.labelled.examples import Question
from xlj.data.labelled.windows import Windows
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.metrics import answers as metrics
from xlj.tasks import answer_spans

REAL = Path(__file__).parents[2].parent / "shared" / "data"


def trained(lines, size: int) -> Vocabulary:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=size, minloglevel=2
    )
    return Vocabulary(model.getvalue())


def perfect(actual: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a confident model that is right."""
    starts, ends = np.zeros((2, *actual.rows.shape), np.float32)
    window = np.arange(len(starts))
    starts[window, actual.answers[:, 0]] = ends[window, actual.answers[:, 1]] = 10
    return starts, ends


def drawn(rng: np.random.Generator, length: int) -> Windows:
    """Windows of up to 4 questions, with intervals of any size; some tokens have no characters."""
    count = rng.integers(1, 4)
    questions = np.sort(np.append(np.arange(count), rng.integers(0, count, rng.integers(0, 4))))
    contexts = np.sort(rng.integers(1, length + 1, (len(questions), 2)), 1)
    owned = np.sort(rng.integers(contexts[:, :1], contexts[:, 1:] + 1, contexts.shape), 1)
    owned = np.where(rng.integers(0, 2, len(owned))[:, None], contexts, owned)
    spans = np.sort(rng.integers(0, 4, (3 * length, 2)), 1).astype(np.int32)
    return Windows(
        rows=np.zeros((len(questions), length), np.uint16),
        questions=questions,
        contexts=contexts,
        owned=owned,
        tokens=rng.integers(0, 2 * length, len(questions)),
        spans=spans,
        answers=np.zeros((len(questions), 2), np.int32),
        cut_questions=0,
        lost_answers=0,
    )


def by_trying_all(actual: Windows, starts, ends, answer_length: int):
    """(tokens, score, null) of each question."""
    for question in range(actual.questions[-1] + 1):
        tokens, score, null = [-1, -1], -np.inf, np.inf
        for w in np.flatnonzero(actual.questions == question):
            null = min(null, starts[w, 0] + ends[w, 0])
            shift = actual.tokens[w] - actual.contexts[w, 0]
            full = [p for p in range(*actual.contexts[w]) if len(range(*actual.spans[p + shift]))]
            for first, last in itertools.product(full, full):
                if first in range(*actual.owned[w]) and 0 <= last - first < answer_length:
                    if starts[w, first] + ends[w, last] > score:
                        score = starts[w, first] + ends[w, last]
                        tokens = [first + shift, last + shift]
        yield tokens, score, null


def test_the_best_span_is_that_of_trying_all():
    rng = np.random.default_rng(0)
    empty = several = 0
    for case in range(3000):
        length, answer_length = int(rng.integers(2, 14)), int(rng.integers(1, 18))
        actual = drawn(rng, length)
        logits = rng.normal(size=(2, *actual.rows.shape)).astype(np.float32)
        if case % 2:  # many equal logits
            logits = rng.integers(-2, 3, logits.shape).astype(np.float32)
        starts, ends = logits
        expected = list(
            by_trying_all(actual, starts.astype(float), ends.astype(float), answer_length)
        )
        tokens, scores, nulls = zip(*expected, strict=True)
        got = answer_spans.best(actual, starts, ends, answer_length)
        assert got.tokens.tolist() == list(tokens)
        assert got.scores.tolist() == list(scores) and got.nulls.tolist() == list(nulls)
        empty += sum(first < 0 for first, _ in tokens)
        several += sum(first < last for first, last in tokens)
    assert empty > 1000 and several > 1000


LINES = {
    language: list(itertools.islice(filter(None, phrasebook.text_lines(language)), 900))
    for language in ("en", "de", "hi", "zh")
}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return trained(itertools.chain(*LINES.values()), 900)


def words_asked(language: str, count: int) -> list[Question]:
    """Questions about long contexts; answers are words, or in Chinese any characters."""
    rng = random.Random(language)
    questions = []
    for i in range(count):
        context = " ".join(rng.choices(LINES[language], k=rng.randint(1, 20)))
        words = list(re.finditer(r"\S" if language == "zh" else r"\S+", context))
        first = rng.randrange(len(words))
        last = min(first + rng.randrange(4), len(words) - 1)
        start, end = words[first].start(), words[last].end()
        answer = (context[start:end], start)
        questions.append(Question(f"{language}-{i}", context[:30], context, (answer,), ""))
    return questions


@pytest.mark.parametrize("language", LINES)
def test_answers_come_back(vocabulary, language):
    questions = words_asked(language, 300)
    actual = windows.make(questions, vocabulary, length=128, stride=60, question_length=20)
    assert len(actual.rows) > 1.3 * len(questions) and not actual.lost_answers
    given = answer_spans.texts(questions, actual, *perfect(actual), answer_length=30)
    golds = {question.identity: question.answers[0][0] for question in questions}
    assert list(given) == list(golds)
    if language == "zh":  # pieces may be longer than an answer
        assert all(gold.strip() in given[key] for key, gold in golds.items())
        assert np.mean([len(given[key]) - len(gold) for key, gold in golds.items()]) < 2
    else:
        assert given == golds


def test_no_answer_where_it_beats_the_best_span(vocabulary):
    (question,) = words_asked("en", 1)
    actual = windows.make([question], vocabulary, length=128, stride=60, question_length=20)
    starts, ends = perfect(actual)
    (answer,) = answer_spans.texts([question], actual, starts, ends, answer_length=30).values()
    assert answer == question.answers[0][0]
    starts[:, 0], ends[:, 0] = 12, 9.5  # 1.5 more than the span

    def given(**options):
        texts = answer_spans.texts([question], actual, starts, ends, answer_length=30, **options)
        return texts[question.identity]

    assert given() == answer == given(no_answer=1.5) and given(no_answer=1.4) == ""
    starts[0, 0] -= 9  # the smallest of all windows counts
    assert given(no_answer=0.0) == answer


def test_empty_texts_are_answered_with_nothing(vocabulary):
    texts = (("", ""), ("x", " \n"), ("", "x"))
    questions = [Question(f"{i}", *both, (), "") for i, both in enumerate(texts)]
    for some in (questions[:1], questions[1:2], questions, []):
        actual = windows.make(some, vocabulary, length=32, stride=4, question_length=9)
        for no_answer in (None, 0.0):
            given = answer_spans.texts(
                some,
                actual,
                *np.zeros((2, *actual.rows.shape)),
                answer_length=7,
                no_answer=no_answer,
            )
            assert given == {q.identity: q.context.strip() for q in some}


def test_what_does_not_fit_is_refused(vocabulary):
    questions = words_asked("en", 3)
    actual = windows.make(questions, vocabulary, length=128, stride=60, question_length=20)
    starts, ends = perfect(actual)
    with pytest.raises(ValueError, match="do not match"):
        answer_spans.best(actual, starts[1:], ends[1:], 5)
    with pytest.raises(ValueError, match="there are 2 questions, but the windows belong to 3"):
        answer_spans.texts(questions[:2], actual, starts, ends, answer_length=5)
    with pytest.raises(ValueError, match="same identity"):
        answer_spans.texts([questions[0]] * 3, actual, starts, ends, answer_length=5)
    starts[0, 127] = ends[0, 1] = np.nan  # of padding and of the question: not used
    starts[0, actual.contexts[0, 1] :] = -np.inf
    answer_spans.best(actual, starts, ends, 5)
    ends[0, actual.contexts[0, 0]] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        answer_spans.best(actual, starts, ends, 5)


def real_questions(path: Path) -> list[Question]:
    content = json.loads(gzip.decompress(path.read_bytes()))
    paragraphs = [paragraph for article in content["data"] for paragraph in article["paragraphs"]]
    return [
        Question(
            entry["id"],
            entry["question"],
            paragraph["context"],
            tuple((answer["text"], answer["answer_start"]) for answer in entry["answers"]),
            str(path),
        )
        for paragraph in paragraphs
        for entry in paragraph["qas"]
    ]


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason=f"there is no real data at {REAL}")
def test_answers_of_xquad_come_back():
    """Except where pieces join words, mostly articles and conjunctions in Arabic."""
    files = {path.name.split(".")[1]: path for path in sorted((REAL / "xquad").glob("*.json.gz"))}
    assert len(files) == 8
    questions = {language: real_questions(path) for language, path in files.items()}
    lines = {q.context for asked in questions.values() for q in asked[:400]}
    vocabulary = trained(sorted(lines), 6000)
    for language, asked in questions.items():
        actual = windows.make(asked, vocabulary, length=384, stride=128, question_length=64)
        given = answer_spans.texts(asked, actual, *perfect(actual), answer_length=100)
        golds = [(q.identity, [q.answers[0][0]]) for q in asked]
        assert actual.lost_answers == 0
        assert metrics.score(given, golds).exact_match > 0.99, language
