"""The best answer span equals that of a plain search; gold answers are recovered from logits."""

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
from xlj.evaluation import metrics
from xlj.tasks import question_answering

REAL = Path(__file__).parents[2].parent / "shared" / "data"


def train_vocabulary(lines, size: int) -> Vocabulary:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=size, minloglevel=2
    )
    return Vocabulary(model.getvalue())


def perfect_logits(inputs: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Returns logits of a model that is confident and always right."""
    starts, ends = np.zeros((2, *inputs.rows.shape), np.float32)
    window = np.arange(len(starts))
    starts[window, inputs.answers[:, 0]] = ends[window, inputs.answers[:, 1]] = 10
    return starts, ends


def random_windows(rng: np.random.Generator, length: int) -> Windows:
    """Draws windows of up to 3 questions, with intervals of any size.

    Some tokens have no characters.
    """
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


def search_all_spans(inputs: Windows, starts, ends, answer_length: int):
    """Yields (tokens, score, null) of each question, by trying all spans."""
    for question in range(inputs.questions[-1] + 1):
        tokens, score, null = [-1, -1], -np.inf, np.inf
        for w in np.flatnonzero(inputs.questions == question):
            null = min(null, starts[w, 0] + ends[w, 0])
            shift = inputs.tokens[w] - inputs.contexts[w, 0]
            full = [p for p in range(*inputs.contexts[w]) if len(range(*inputs.spans[p + shift]))]
            for first, last in itertools.product(full, full):
                if first in range(*inputs.owned[w]) and 0 <= last - first < answer_length:
                    if starts[w, first] + ends[w, last] > score:
                        score = starts[w, first] + ends[w, last]
                        tokens = [first + shift, last + shift]
        yield tokens, score, null


def test_the_best_span_equals_a_search_of_all_spans():
    rng = np.random.default_rng(0)
    without_span = multi_token = 0
    for case in range(3000):
        length, answer_length = int(rng.integers(2, 14)), int(rng.integers(1, 18))
        inputs = random_windows(rng, length)
        logits = rng.normal(size=(2, *inputs.rows.shape)).astype(np.float32)
        if case % 2:  # many equal logits
            logits = rng.integers(-2, 3, logits.shape).astype(np.float32)
        starts, ends = logits
        expected = list(
            search_all_spans(inputs, starts.astype(float), ends.astype(float), answer_length)
        )
        tokens, scores, nulls = zip(*expected, strict=True)
        best = question_answering.best_span(inputs, starts, ends, answer_length)
        assert best.tokens.tolist() == list(tokens)
        assert best.scores.tolist() == list(scores) and best.nulls.tolist() == list(nulls)
        without_span += sum(first < 0 for first, _ in tokens)
        multi_token += sum(first < last for first, last in tokens)
    assert without_span > 1000 and multi_token > 1000


LINES = {
    language: list(itertools.islice(filter(None, phrasebook.text_lines(language)), 900))
    for language in ("en", "de", "hi", "zh")
}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return train_vocabulary(itertools.chain(*LINES.values()), 900)


def word_questions(language: str, count: int) -> list[Question]:
    """Draws questions about long contexts. Answers are whole words; in Chinese, any characters."""
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
def test_gold_answers_are_recovered_from_perfect_logits(vocabulary, language):
    questions = word_questions(language, 300)
    inputs = windows.make(questions, vocabulary, length=128, stride=60, question_length=20)
    assert len(inputs.rows) > 1.3 * len(questions) and not inputs.lost_answers
    answers = question_answering.texts(questions, inputs, *perfect_logits(inputs), answer_length=30)
    golds = {question.identity: question.answers[0][0] for question in questions}
    assert list(answers) == list(golds)
    if language == "zh":  # a piece may contain more characters than the answer
        assert all(gold.strip() in answers[key] for key, gold in golds.items())
        assert np.mean([len(answers[key]) - len(gold) for key, gold in golds.items()]) < 2
    else:
        assert answers == golds


def test_the_answer_is_empty_if_the_null_score_exceeds_the_threshold(vocabulary):
    (question,) = word_questions("en", 1)
    inputs = windows.make([question], vocabulary, length=128, stride=60, question_length=20)
    starts, ends = perfect_logits(inputs)
    (answer,) = question_answering.texts(
        [question], inputs, starts, ends, answer_length=30
    ).values()
    assert answer == question.answers[0][0]
    starts[:, 0], ends[:, 0] = 12, 9.5  # the sum is 1.5 more than that of the span

    def answer_with(**options):
        texts = question_answering.texts(
            [question], inputs, starts, ends, answer_length=30, **options
        )
        return texts[question.identity]

    assert (
        answer_with() == answer == answer_with(no_answer=1.5) and answer_with(no_answer=1.4) == ""
    )
    starts[0, 0] -= 9  # the smallest null score of all windows counts
    assert answer_with(no_answer=0.0) == answer


def test_empty_contexts_have_empty_answers(vocabulary):
    texts = (("", ""), ("x", " \n"), ("", "x"))
    questions = [
        Question(f"{i}", *question_and_context, (), "")
        for i, question_and_context in enumerate(texts)
    ]
    for subset in (questions[:1], questions[1:2], questions, []):
        inputs = windows.make(subset, vocabulary, length=32, stride=4, question_length=9)
        for no_answer in (None, 0.0):
            answers = question_answering.texts(
                subset,
                inputs,
                *np.zeros((2, *inputs.rows.shape)),
                answer_length=7,
                no_answer=no_answer,
            )
            assert answers == {q.identity: q.context.strip() for q in subset}


def test_invalid_logits_and_questions_are_refused(vocabulary):
    questions = word_questions("en", 3)
    inputs = windows.make(questions, vocabulary, length=128, stride=60, question_length=20)
    starts, ends = perfect_logits(inputs)
    with pytest.raises(ValueError, match="do not match"):
        question_answering.best_span(inputs, starts[1:], ends[1:], 5)
    with pytest.raises(ValueError, match="there are 2 questions, but the windows belong to 3"):
        question_answering.texts(questions[:2], inputs, starts, ends, answer_length=5)
    with pytest.raises(ValueError, match="same identity"):
        question_answering.texts([questions[0]] * 3, inputs, starts, ends, answer_length=5)
    starts[0, 127] = ends[0, 1] = np.nan  # logits of padding and of the question are not used
    starts[0, inputs.contexts[0, 1] :] = -np.inf
    question_answering.best_span(inputs, starts, ends, 5)
    ends[0, inputs.contexts[0, 0]] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        question_answering.best_span(inputs, starts, ends, 5)


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
def test_gold_answers_of_xquad_are_recovered():
    """A few answers differ, because a piece can contain more than the answer.

    Most of these pieces begin with an Arabic article or conjunction, which is written as one word
    with the next word.
    """
    files = {path.name.split(".")[1]: path for path in sorted((REAL / "xquad").glob("*.json.gz"))}
    assert len(files) == 8
    questions = {language: real_questions(path) for language, path in files.items()}
    lines = {q.context for examples in questions.values() for q in examples[:400]}
    vocabulary = train_vocabulary(sorted(lines), 6000)
    for language, examples in questions.items():
        inputs = windows.make(examples, vocabulary, length=384, stride=128, question_length=64)
        answers = question_answering.texts(
            examples, inputs, *perfect_logits(inputs), answer_length=100
        )
        golds = [(q.identity, [q.answers[0][0]]) for q in examples]
        assert inputs.lost_answers == 0
        assert metrics.answer_scores(answers, golds).exact_match > 0.99, language
