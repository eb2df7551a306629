"""Multiple choice: reads XCOPA's format, puts all choices in one row, computes accuracy."""

import json

import jax
import numpy as np
import pytest

from xlj.config import ConfigError, Model
from xlj.config.task import Task
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.objectives.supervised import head as heads
from xlj.tasks.multiple_choice import MAX_CHOICES, Choices, MultipleChoice

KIND = MultipleChoice()
TASK = Task(kind="multiple_choice", length=48)


def test_xcopa_is_read(tmp_path):
    record = {"premise": "It rained.", "choice1": "Wet.", "choice2": "Dry.", "question": "effect"}
    lines = [record | {"label": 0, "idx": 0}, record | {"label": 1}, record | {"label": -1}]
    lines.append({"premise": "P", "choices": ["a", "b", "c"], "label": 2})
    lines.append({"choice3": "c", "choice1": "a", "choice2": "b", "question": "Q?"})
    file = tmp_path / "test.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    examples = KIND.read(file, "en", TASK)
    assert examples[0] == Choices("It rained. effect", ("Wet.", "Dry."), 0, f"{file}:1")
    assert examples[4] == Choices("Q?", ("a", "b", "c"), None, f"{file}:5")
    assert [example.right for example in examples] == [0, 1, None, 2, None]
    assert [example.labels for example in examples[1:3]] == [(), None]
    assert not KIND.is_labelled(examples) and KIND.is_labelled(examples[:2])


@pytest.mark.parametrize(
    "change, message",
    [
        ({"label": 2}, "label is '?2'?; expected the index of the right choice, 0 to 1"),
        ({"label": -2}, "label is '?-2'?"),
        ({"label": "0"}, "label is '0'"),
        ({"label": True}, "label is '?True'?; expected the index"),
        ({"choice2": None}, "expected a list `choices` of texts"),
        ({"choice2": " "}, "the premise or a choice is empty"),
        ({"choices": []}, "expected a list `choices` of texts.*the record has premise, choice1"),
        ({"choices": ["a"]}, "the number of choices is 1; expected 2 to 8"),
        ({"choices": ["a"] * 9}, "the number of choices is 9; expected 2 to 8"),
        ({"premise": " "}, "the premise or a choice is empty"),
        ({"premise": 3}, "premise is 3, expected a text; .*task.columns names other keys"),
        (
            {"premise": None, "question": None},
            "needs a text under the key premise or context or question",
        ),
        ({"label": None, "answer": "B"}, "answer is 'B'; .*task.names=1,2"),
    ],
)
def test_invalid_records_are_refused(tmp_path, change, message):
    record = {"premise": "P", "choice1": "a", "choice2": "b", "label": 0} | change
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(ConfigError, match=f"a.jsonl:1: .*{message}"):
        KIND.read(tmp_path / "a.jsonl", "en", TASK)


BELEBELE = {
    "flores_passage": "P.",
    "question": "Q?",
    "mc_answer1": "a",
    "mc_answer2": "b",
    "mc_answer3": "c",
    "correct_answer_num": "3",
    "dialect": "deu_Latn",
}
BELEBELE_KEYS = (
    "question+flores_passage|passage,mc_answer1,mc_answer2,mc_answer3,correct_answer_num"
)
CSQA = {"question": {"stem": "S?"}, "answerKey": "B"}
CSQA_CHOICES = [{"label": "A", "text": "one"}, {"text": "two", "label": "B"}]
LISTS = {"text": ["one", "two"], "label": ["A", "B"]}


@pytest.mark.parametrize(
    "record, columns, names, expected",
    [
        (BELEBELE, BELEBELE_KEYS, "123", ("Q? P.", ("a", "b", "c"), 2)),
        (BELEBELE | {"correct_answer_num": 1}, BELEBELE_KEYS, "123", ("Q? P.", ("a", "b", "c"), 0)),
        (
            CSQA | {"question": CSQA["question"] | {"choices": CSQA_CHOICES}},
            "question.stem,question.choices,answerKey",
            "",
            ("S?", ("one", "two"), 1),
        ),
        (CSQA | {"q": "S?", "c": LISTS}, "q,c,answerKey", "", ("S?", ("one", "two"), 1)),
        (CSQA | {"q": "S?", "c": LISTS}, "q,c,answerKey", "BA", ("S?", ("one", "two"), 0)),
        ({"q": "S?", "c": ["x", "y"], "n": 1}, "q,c,n", "", ("S?", ("x", "y"), 1)),
        ({"q": "S?", "c": ["x", "y"], "n": ""}, "q,c,n", "AB", ("S?", ("x", "y"), None)),
        ({"q": "S?", "c": ["x", "y"]}, "q,c,n", "AB", ("S?", ("x", "y"), None)),
    ],
)
def test_keys_may_be_named(tmp_path, record, columns, names, expected):
    """The layouts of Belebele and CommonsenseQA, and of the latter in Hugging Face's data sets."""
    file = tmp_path / "test.jsonl"
    file.write_text(json.dumps(record) + "\n")
    task = Task(kind="multiple_choice", columns=tuple(columns.split(",")), names=tuple(names))
    (example,) = KIND.read(file, "en", task)
    assert example == Choices(*expected, f"{file}:1")
    assert example.language == record.get("dialect", "")


def test_a_table_with_a_header_is_read(tmp_path):
    """XStoryCloze counts the endings from 1."""
    file = tmp_path / "val.tsv"
    file.write_text("id\tS1\tS2\tE1\tE2\tRight\nx\tA.\tB.\tno\tyes\t2\n")
    task = Task(kind="multiple_choice", columns=("S1+S2", "E1", "E2", "Right"), names=("1", "2"))
    assert KIND.read(file, "en", task) == [Choices("A. B.", ("no", "yes"), 1, f"{file}:2")]
    file.write_text("S1\tE1\tE2\tRight\nA.\tno\tyes\n")
    with pytest.raises(ConfigError, match="val.tsv:2: 3 columns, but 4 in the header"):
        KIND.read(file, "en", task)


@pytest.mark.parametrize(
    "columns, names, message",
    [
        ("q,c", "", "task.columns=q,c: name the premise, the choices or their list, and the label"),
        ("p,c,n", "", "a.jsonl:1: no key 'p', which task.columns names; the record has q, c, n"),
        ("n,c,l", "", "a.jsonl:1: n has '?2'?, expected a text"),
        ("q,c,n", "", "a.jsonl:1: n is '?2'?; expected the index .* 0 to 1; task.names=1,2,"),
        (
            "q,c,n",
            "AB",
            "a.jsonl:1: n is '?2'?; expected the index of the right choice, one of A, B",
        ),
        ("q,c,n", "012", "a.jsonl:1: n is '?2'?; expected the index"),
    ],
)
def test_wrong_keys_are_refused(tmp_path, columns, names, message):
    (tmp_path / "a.jsonl").write_text('{"q": "S?", "c": ["x", "y"], "n": 2}\n')
    task = Task(kind="multiple_choice", columns=tuple(columns.split(",")), names=tuple(names))
    with pytest.raises(ConfigError, match=message):
        KIND.read(tmp_path / "a.jsonl", "en", task)


def test_a_row_repeats_the_premise_for_each_choice(vocabulary):
    texts = ("The cat sleeps.", "It is late.", "It is a dog and it sings all day long, all night.")
    premise, first, second = (ids.tolist() for ids in vocabulary.encode_batch(texts))
    examples = [Choices(texts[0], texts[1:], 1, "f:1"), Choices(texts[0], texts[1:2] * 2, None, "")]
    features = KIND.rows(examples, vocabulary, (), TASK)
    limit = 48 // 2 - 3
    while len(premise) + len(second) > limit:
        second.pop()
    row = [BOS, *premise, EOS, *first, EOS, BOS, *premise, EOS, *second, EOS]
    assert features.tokens[0].tolist() == row + [PAD] * (48 - len(row))
    assert features.labels["labels"].tolist() == [[2], [0]] and features.cut == {"examples": 1}
    swapped = [Choices(texts[0], texts[:0:-1], 0, "")]  # the first choice alone is truncated
    assert KIND.rows(swapped, vocabulary, (), TASK).cut == {"examples": 1}
    eight = [Choices("a", ("b",) * 8, 0, "f:1")]
    assert (KIND.rows(eight, vocabulary, (), Task(length=40)).tokens[0] != PAD).all()
    with pytest.raises(ConfigError, match="f:1: task.length=39 is too short for 8 choices"):
        KIND.rows(eight, vocabulary, (), Task(length=39))


def test_predictions_are_described_and_scored():
    logits = np.array([[0.0, 1.0, -np.inf], [3.0, 1.0, 2.0]], np.float32)
    examples = [Choices("p", ("a", "b"), 1, ""), Choices("p", ("a", "b", "c"), 2, "")]
    predictions = KIND.describe(logits, None, examples, (), TASK)
    assert [prediction["choice"] for prediction in predictions] == [1, 0]
    np.testing.assert_allclose(predictions[0]["probabilities"], [1 / (1 + np.e), np.e / (1 + np.e)])
    assert len(predictions[1]["probabilities"]) == 3 and KIND.to_fields(predictions[0]) == [
        "1",
        "0.731059",
    ]
    assert KIND.scores([1, 0], examples, "accuracy", "en") == {"accuracy": 0.5}
    assert KIND.majority(examples)(examples) == [1, 1]
    unlabelled = [Choices("p", ("a", "b"), None, "")] * 3
    assert KIND.majority(unlabelled + examples[1:])(examples) == [2, 2]
    assert KIND.from_fields(["p", "a", "b"], "f:2") == Choices("p", ("a", "b"), None, "f:2")
    record = {"context": "p", "question": "q", "choices": ["a", "b"], "label": "unknown"}
    assert KIND.from_record(record, "f:2") == Choices("p q", ("a", "b"), None, "f:2")


def test_the_loss_of_an_example_is_that_of_its_own_choices(monkeypatch):
    """Compares with NumPy for examples with 2, 3 and 8 choices, and for one without a label.

    The random keys reach the head, which uses them for its dropout.
    """
    classify, keys = heads.classify, jax.random.split(jax.random.key(0), 4)

    def classify_without_dropout(head, model, vectors, rngs):
        assert rngs is keys
        return classify(head, model, vectors, None)

    monkeypatch.setattr(heads, "classify", classify_without_dropout)
    head, rng = KIND.head(), np.random.default_rng(0)
    counts, right = np.array([2, 3, MAX_CHOICES, 2]), np.array([1, 2, 7, -1])
    tokens, hidden = np.full((4, 40), PAD), rng.normal(size=(4, 40, 3)).astype(np.float32)
    for row, count in zip(tokens, counts, strict=True):
        row[: 5 * count] = [BOS, 7, EOS, 8, EOS] * count
    params = {
        part: {"kernel": rng.normal(size=(3, size)), "bias": rng.normal(size=size)}
        for part, size in (("dense", 3), ("output", 1))
    }
    labels = right[:, None] + 1

    @jax.jit  # one program compiles faster than each operation alone
    def run(params, hidden, tokens, labels):
        logits = head.logits(params, Model(hidden=3, heads=1), hidden, tokens, keys)
        rows = {"labels": labels}
        return logits, *head.losses(logits, rows), head.weights(rows), head.predict(logits)

    logits, losses, correct, weights, best = run(params, hidden, tokens, labels)
    of_choices = hidden[:, ::5] @ params["dense"]["kernel"] + params["dense"]["bias"]
    expected = np.tanh(of_choices) @ params["output"]["kernel"] + params["output"]["bias"]
    expected = np.where(np.arange(MAX_CHOICES) < counts[:, None], expected[..., 0], -np.inf)
    np.testing.assert_allclose(logits, expected, rtol=1e-5)
    probabilities = np.exp(expected) / np.exp(expected).sum(1, keepdims=True)
    of_right = probabilities[np.arange(3), right[:3]]
    np.testing.assert_allclose(losses[:3, 0], -np.log(of_right), rtol=1e-5)
    assert correct[:3, 0].tolist() == (expected.argmax(1) == right)[:3].tolist()
    assert weights.tolist() == [[1], [1], [1], [0]] and best.tolist() == expected.argmax(1).tolist()
