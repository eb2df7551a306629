"""Question answering: windows with labels, descriptions of answers, scores, and new text."""

import json

import jax
import numpy as np
import pytest

from xlj.config import ConfigError, Model
from xlj.config.task import Task
from xlj.data.labelled.examples import Question
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.tasks.question_answering import QuestionAnswering

KIND = QuestionAnswering()
TASK = Task(
    kind="question_answering", length=40, stride=16, question_length=6, answer_length=8,
)  # fmt: skip
LONG = "The dog sleeps and the cat runs. " * 2 + "A horse sings at night. The dog sleeps."
QUESTIONS = [
    Question("a", "Who?", LONG, (("horse", LONG.index("horse")),), ""),
    Question("b", "When does the horse of the long context sing?", "At night.", (), ""),
    Question("c", "Who?", " \n", None, ""),
]


@pytest.fixture
def rows(vocabulary):
    return KIND.rows(QUESTIONS, vocabulary, (), TASK)


def test_windows_with_the_whole_answer_have_its_positions_as_labels(rows, vocabulary):
    windows = rows.windows
    answers = [
        "" if not first else LONG[slice(*windows.spans[[first + shift, last + shift], [0, 1]])]
        for shift, (first, last) in zip(
            windows.tokens - windows.contexts[:, 0], rows.labels["labels"].tolist(), strict=True
        )
    ]
    assert windows.questions.tolist() == [0] * (len(answers) - 2) + [1, 2]
    assert answers.count("horse") > 1 and {*answers[-2:]} == {""} <= {*answers[:-2]}
    assert rows.tokens.dtype == np.int32 and rows.cut == {"questions": 1, "answers": 0}
    too_long = [Question("d", "Who?", LONG, ((LONG, 0),), "")]
    assert KIND.rows(too_long, vocabulary, (), TASK).cut == {"questions": 0, "answers": 1}


def test_the_losses_of_start_and_end_are_over_the_tokens_without_padding():
    """Compares with NumPy. The label 0, the position of `<s>`, counts as any other position."""
    head, rng = KIND.head(), np.random.default_rng(0)
    hidden = rng.normal(size=(4, 6, 4)).astype(np.float32)
    tokens = np.array(
        [[BOS, 7, EOS, 8, 9, EOS], [BOS, 7, EOS, 8, EOS, PAD], [BOS, EOS] + 4 * [PAD], 6 * [PAD]]
    )
    labels = np.array([[3, 4], [0, 0], [0, 0], [0, 0]])
    params = {"output": {"kernel": rng.normal(size=(4, 2)), "bias": rng.normal(size=2)}}

    @jax.jit  # one program compiles faster than each operation alone
    def run(params, hidden, tokens, labels):
        logits = head.logits(params, Model(hidden=4, heads=1), hidden, tokens, None)
        rows = {"tokens": tokens, "labels": labels}
        return logits, *head.losses(logits, rows), head.weights(rows)

    logits, losses, correct, weights = run(params, hidden, tokens, labels)
    expected = hidden @ params["output"]["kernel"] + params["output"]["bias"]
    expected[(tokens == PAD) & (np.arange(6) > 0)] = -np.inf
    np.testing.assert_allclose(head.predict(logits), expected, rtol=1e-5)
    of_label = np.take_along_axis(expected, labels[:, None], 1)[:, 0]
    np.testing.assert_allclose(losses, np.log(np.exp(expected).sum(1)) - of_label, rtol=1e-5)
    assert (correct == (expected.argmax(1) == labels)).all()
    assert weights.tolist() == [[1, 1]] * 3 + [[0, 0]]  # a row without text does not count
    assert head.by_token


@pytest.mark.parametrize("no_answer", [False, True])
def test_predictions_are_described(no_answer, rows):
    """With `no_answer`, the smallest score of `<s>` over the windows is subtracted."""
    logits = np.zeros((*rows.tokens.shape, 2), np.float32)
    for window, (first, last) in enumerate(rows.labels["labels"]):
        logits[window, first, 0], logits[window, last, 1] = 4, 3
        logits[window, 0] = 0.5 + window, 0.25
    task = Task(answer_length=8, no_answer=no_answer)
    start, null_b = LONG.index("horse"), len(rows.tokens) - 2 + 0.75
    first, second, third = KIND.describe(logits, rows, QUESTIONS, (), task)
    score = 7 - 0.75 if no_answer else 7
    assert first == {"answer": "horse", "start": start, "end": start + 5, "score": score}
    if no_answer:
        assert second == {"answer": "", "start": None, "end": None, "score": -null_b}
    else:
        assert (second["answer"], second["score"]) == ("At night."[: second["end"]], 0)
        assert second["start"] == 0 < second["end"]
    assert third == {"answer": "", "start": None, "end": None, "score": None}
    outputs = KIND.decode(logits, rows, QUESTIONS, (), task)
    assert outputs == {"a": "horse", "b": second["answer"], "c": ""}
    assert KIND.to_fields(first) == ["horse", f"{score:.6f}"]
    assert KIND.to_fields({"answer": " a \n b\t", "score": None}) == ["a b", ""]
    assert json.loads(KIND.to_text({"a": "é", "b": ""})) == {"a": "é", "b": ""}
    assert "é" in KIND.to_text({"a": "é"})


def test_questions_are_read_as_the_task_says_with_distinct_identities(tmp_path):
    answer = {"text": "cat", "answer_start": 0}
    question = {"id": "1", "question": "Who?", "answers": [answer]}
    data = {"data": [{"paragraphs": [{"context": "A cat.", "qas": [question]}]}]}
    file = tmp_path / "a.json"
    file.write_text(json.dumps(data))
    (example,) = KIND.read(file, "en", Task(misplaced="find"))
    assert example.answers == (("cat", 2),) and KIND.read(file, "en", Task(misplaced="skip")) == []
    other = Question("1", "What?", "A cat.", None, "")
    assert [one.identity for one in KIND.distinct([example, other])] == ["1", "1#2"]


def test_scores_are_means_over_all_questions():
    """Two questions with gold answers and one without; MLQA removes German articles."""
    answers = ((("a cat", 9), ("der Hund", 0)), (("the dog", 0),), ())
    questions = [Question(str(n), "?", "c", texts, "") for n, texts in enumerate(answers)]
    predicted = {"0": "Hund", "1": "dog sleeps", "2": ""}
    half = {"f1": (2 / 3 + 2 / 3 + 1) / 3, "exact_match": 1 / 3}
    assert KIND.scores(predicted, questions, "squad", "de") == pytest.approx(half)
    whole = {"f1": (1 + 1 / 2 + 1) / 3, "exact_match": 2 / 3}
    assert KIND.scores(predicted, questions, "mlqa", "de") == pytest.approx(whole)
    assert KIND.is_labelled(questions) and not KIND.is_labelled(questions[2:])
    assert KIND.remark(questions).startswith("1 without an answer") and not KIND.remark([])


def test_windows_share_at_least_two_answers():
    KIND.check(Task(stride=16, answer_length=8))
    with pytest.raises(ConfigError, match="task.stride=15 must be at least twice task.answer_len"):
        KIND.check(Task(stride=15, answer_length=8))


def test_new_text_has_a_question_and_a_context():
    expected = Question("f:2", "Who?", "A cat.", None, "f:2")
    assert KIND.from_fields(["Who?", "A cat."], "f:2") == expected
    record = {"id": 7, "context": "A cat.", "question": "Who?"}
    assert KIND.from_record(record, "f:2") == expected
    for count in (1, 3):
        with pytest.raises(ConfigError, match=f"f:2: {count} columns; expected `question TAB"):
            KIND.from_fields(["a"] * count, "f:2")
    with pytest.raises(ConfigError, match="f:2: the object needs a text under the key context"):
        KIND.from_record({"question": "Who?", "context": None}, "f:2")
