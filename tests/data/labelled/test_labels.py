"""Label sets of a task, and errors for examples that do not match them."""

import pytest

from xlj.config import ConfigError
from xlj.data.labelled import labels
from xlj.data.labelled.examples import Question, Sentences, Words

PAIRS = [Sentences(("a",), "no", "f:1"), Sentences(("b",), "yes", "f:2")]
WORDS = [Words(("a", "b"), ("X", "O"), "g:1"), Words(("c",), ("O",), "g:4")]
QUESTIONS = [Question("1", "?", "c", (), "h")]


def test_labels_of_training_data_are_sorted_and_configured_labels_keep_their_order():
    assert labels.label_set(reversed(PAIRS), ()) == ("no", "yes")
    assert labels.label_set(WORDS, ()) == ("O", "X")
    assert labels.label_set(PAIRS, ("yes", "maybe", "no")) == ("yes", "maybe", "no")
    assert labels.label_set(QUESTIONS, ()) == ()


def test_unknown_labels_are_refused_with_their_place():
    with pytest.raises(ConfigError, match="f:2: 'yes' is not a label .* has no, yess .*mean yess"):
        labels.label_set(PAIRS, ("no", "yess"))
    with pytest.raises(
        ConfigError, match="g:1: 'X' of 'a' is not a label of the task, which has O "
    ):
        labels.check(WORDS, ("O",))
    labels.check([*WORDS, Words(("c",), None, "g:9")], ("O", "X"))


def test_examples_without_labels_cannot_train():
    for example, missing in (
        (Sentences(("a",), None, "f:3"), "label"),
        (Words(("a",), None, "f:3"), "tags"),
        (Question("1", "?", "c", None, "f:3"), "answers; mark .* with is_impossible"),
    ):
        with pytest.raises(ConfigError, match=f"f:3: this example has no {missing}"):
            labels.label_set([example], ())
    labels.require(QUESTIONS)


def test_labelled_and_unlabelled_examples_must_not_be_mixed():
    for examples in (PAIRS, WORDS, QUESTIONS, [Sentences(("a",), None, "f:3")] * 2):
        labels.check_all_or_none(examples)
    with pytest.raises(
        ConfigError, match="f:3: this example has no label, but the example at f:1 has; label all"
    ):
        labels.check_all_or_none([*PAIRS, Sentences(("a",), None, "f:3")])
    with pytest.raises(
        ConfigError, match="g:2: this example has no answers, but the example at h has; mark"
    ):
        labels.check_all_or_none([Question("2", "?", "c", None, "g:2"), *QUESTIONS])


def test_a_task_with_only_one_label_is_refused():
    with pytest.raises(ConfigError, match=r"f:1: 'no' is the only label of the task"):
        labels.label_set(PAIRS[:1], ("no",))
    with pytest.raises(ConfigError, match="is the only label of the task"):
        labels.label_set(PAIRS[:1], ())
