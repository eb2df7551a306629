"""Questions in SQuAD's JSON."""

import json

import pytest

from xlj.config import ConfigError
from xlj.data.labelled import squad
from xlj.data.labelled.examples import Question, Sentences

CONTEXT = "One 🙂 and one more: ein Apfel."


@pytest.fixture
def write(tmp_path):
    def write(*paragraphs):
        file = tmp_path / "a.json"
        file.write_text(json.dumps({"version": 1, "data": [{"paragraphs": list(paragraphs)}]}))
        return file

    return write


def paragraph(*qas, context=CONTEXT):
    return {"context": context, "qas": list(qas)}


def entry(identity, *answers, question="?", **more):
    answers = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": identity, "question": question, "answers": answers, **more}


def test_questions_answers_and_places(write):
    file = write(paragraph(entry("x", ("One", 0), ("🙂", 4))), paragraph(entry("y", ("one", 10))))
    at = f"{file}: data[0].paragraphs"
    assert squad.read(file) == [
        Question("x", "?", CONTEXT, (("One", 0), ("🙂", 4)), f"{at}[0].qas[0]"),
        Question("y", "?", CONTEXT, (("one", 10),), f"{at}[1].qas[0]"),
    ]


def test_questions_without_answers(write):
    unsaid = entry("d")
    del unsaid["answers"]
    plausible = [{"text": "Apfel", "answer_start": 0}]
    file = write(
        paragraph(
            entry("a", is_impossible=True, plausible_answers=plausible),
            entry("b", ("", 0)),  # XTREME's test files
            entry("c"),
            unsaid,
            entry("e", ("One", 0), is_impossible=False),
        )
    )
    found = [question.answers for question in squad.read(file)]
    assert found == [(), None, (), None, (("One", 0),)]


def test_repeated_ids(write):
    """XTREME's TyDiQA has them for other questions, its translations for further answers."""
    file = write(
        paragraph(entry("0", ("One", 0)), entry("0", ("One", 0), question="Who?")),
        paragraph(entry("0", ("one", 10)), entry("0#2"), entry("0", question="Why?")),
        paragraph(entry("0", ("x", 0)), context="x"),
    )
    questions = squad.read(file)
    assert [(q.identity, q.question) for q in questions] == [
        ("0", "?"),
        ("0#2", "Who?"),
        ("0#2#2", "?"),
        ("0#3", "Why?"),
        ("0#4", "?"),
    ]
    assert questions[0].answers == (("One", 0), ("one", 10))
    assert questions[-1].context == "x"


@pytest.mark.parametrize(
    "bad, message",
    [
        (
            entry("x", ("one", 9)),
            r"question x.*'one' should be at character 9.*' on'; it is at 10$",
        ),
        (entry("x", ("e", 18)), "it is at 17$"),
        (entry("x", ("pear", 0)), "there is 'One '$"),
        (entry("x", ("one", -1)), "at character -1"),
        (entry("x", ("Apfel.", 200)), "it is at"),
        (entry("x", ("One", 0), ("", 0)), "the answer ''"),
        (entry("x", ("One", "0")), r"qas\[0\].answers\[0\].answer_start is '0', no whole number"),
        (entry("x", (None, 0)), r"answers\[0\].text is None, which is no text"),
        (entry("x", ("One", 0), is_impossible=True), "is_impossible, but it has answers"),
        (entry("x", question="\ud800"), "half a surrogate pair"),
        (entry(3), r"qas\[0\].id is 3"),
        ({"id": "x", "question": "?", "answers": {}}, r"no list data\[0\].*qas\[0\].answers"),
        ({"id": "x", "answers": []}, "question is None"),
        ("x", r"qas\[0\].id is None"),
    ],
)
def test_what_does_not_fit(write, bad, message):
    with pytest.raises(ConfigError, match=message) as error:
        squad.read(write(paragraph(bad)))
    assert "data[0].paragraphs[0].qas[0]" in str(error.value)


def test_a_paragraph_without_a_context(write):
    with pytest.raises(ConfigError, match=r"paragraphs\[0\].context is None"):
        squad.read(write({"qas": [entry("x")]}))


def test_questions_of_several_sources_have_identities_of_their_own_and_others_stay():
    asked = [Question("0", text, "a context", (), "") for text in ("Who?", "What?")]
    assert [q.identity for q in squad.distinct(asked)] == ["0", "0#2"]
    alike = [Sentences(("a",), "x", "f:1"), Sentences(("a",), "x", "f:1")]
    assert squad.distinct(alike) == alike
