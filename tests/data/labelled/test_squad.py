"""Reading questions in SQuAD's JSON."""

import json

import pytest

from xlj.config import ConfigError
from xlj.data.labelled import kind, squad
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


def test_questions_are_read_with_answers_and_places(write):
    file = write(paragraph(entry("x", ("One", 0), ("🙂", 4))), paragraph(entry("y", ("one", 10))))
    at = f"{file}: data[0].paragraphs"
    assert squad.read(file) == [
        Question("x", "?", CONTEXT, (("One", 0), ("🙂", 4)), f"{at}[0].qas[0]"),
        Question("y", "?", CONTEXT, (("one", 10),), f"{at}[1].qas[0]"),
    ]


def test_questions_may_have_no_answers_or_unknown_answers(write):
    unanswered = entry("d")
    del unanswered["answers"]
    plausible = [{"text": "Apfel", "answer_start": 0}]
    file = write(
        paragraph(
            entry("a", is_impossible=True, plausible_answers=plausible),
            entry("b", ("", 0)),  # XTREME's test files
            entry("c"),
            unanswered,
            entry("e", ("One", 0), is_impossible=False),
        )
    )
    actual = [question.answers for question in squad.read(file)]
    assert actual == [(), None, (), None, (("One", 0),)]


def test_repeated_ids_become_unique_or_merge_the_answers_of_a_question(write):
    """XTREME's TyDiQA repeats an id for another question, or, if translated, for another answer."""
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


def test_merged_entries_without_answers_stay_unknown_or_unanswerable(write):
    unknown = entry("a")
    del unknown["answers"]
    unanswerable = entry("b", is_impossible=True)
    file = write(paragraph(unknown, unanswerable), paragraph(unknown, unanswerable))
    assert [(q.identity, q.answers) for q in squad.read(file)] == [("a", None), ("b", ())]


@pytest.mark.parametrize(
    "bad, message",
    [
        (
            entry("x", ("one", 9)),
            r"question x\): answer_start=9 of the answer 'one': the context has ' on' at this "
            r"position; the answer is at 10; task\.misplaced=find uses this position$",
        ),
        (
            entry("x", ("e", 18)),
            r"the nearest of its \d+ occurrences is at 17; correct answer_start, or drop",
        ),
        (
            entry("x", ("pear", 0)),
            "has 'One ' at this position; the answer is not in the context; "
            "task.misplaced=skip drops",
        ),
        (
            entry("x", ("one", -1)),
            "the answer 'one' has no answer_start, or a negative one; the answer is at 10",
        ),
        (entry("x", ("Apfel.", 200)), "has '' at this position; the answer is at"),
        (entry("x", ("One", 0), ("", 0)), "the answer ''"),
        (
            entry("x", ("One", "0x")),
            r"qas\[0\].answers\[0\].answer_start is '0x', expected a whole number",
        ),
        (entry("x", (None, 0)), r"answers\[0\].text is None, expected a text"),
        (
            entry("x", ("One", 0), is_impossible=True),
            "is_impossible is set, but the question has answers",
        ),
        (entry("x", question="\ud800"), "half a surrogate pair"),
        (entry(3.5), r"qas\[0\].id is 3.5"),
        (entry(True), r"qas\[0\].id is True"),
        (
            {"id": "x", "question": "?", "answers": {}},
            r"data\[0\].*qas\[0\].answers needs a list `text`; its list `answer_start` must",
        ),
        ({"id": "x", "answers": []}, "question is None"),
        ("x", r"qas\[0\].id is None"),
    ],
)
def test_invalid_questions_are_refused_with_their_place(write, bad, message):
    with pytest.raises(ConfigError, match=message) as error:
        squad.read(write(paragraph(bad)))
    assert "data[0].paragraphs[0].qas[0]" in str(error.value)


def test_a_paragraph_without_a_context_is_refused(write):
    with pytest.raises(ConfigError, match=r"paragraphs\[0\].context is None"):
        squad.read(write({"qas": [entry("x")]}))


def test_question_ids_become_unique_across_sources_and_other_kinds_do_not_change():
    questions = [Question("0", text, "a context", (), "") for text in ("Who?", "What?")]
    assert [q.identity for q in kind.find("question_answering").distinct(questions)] == ["0", "0#2"]
    sentences = [Sentences(("a",), "x", "f:1"), Sentences(("a",), "x", "f:1")]
    assert kind.find("classification").distinct(sentences) == sentences


def read(folder, content, misplaced="error", name="a.json"):
    (folder / name).write_text(content, "utf-8")
    return squad.read(folder / name, misplaced)


def test_ids_and_offsets_may_be_numbers_or_strings(write):
    """GermanQuAD's ids are numbers."""
    actual = squad.read(write(paragraph(entry(51870, ("One", "0")), entry(2, ("one", 10.0)))))
    assert [q.identity for q in actual] == ["51870", "2"]
    assert [q.answers for q in actual] == [(("One", 0),), (("one", 10),)]


RECORDS = [
    {"id": "a", "title": "t", "context": CONTEXT, "question": "?", "answers": answers}
    for answers in (
        {"text": ["One", "one"], "answer_start": [0, 10]},
        {"text": [], "answer_start": []},
        {"text": "Apfel", "answer_start": 24},
    )
]
RECORDS = [{**record, "id": k} for k, record in enumerate(RECORDS)]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_json_lines_of_hugging_face_are_read(tmp_path, name):
    lines = "".join(json.dumps(record) + "\n" for record in RECORDS)
    actual = read(tmp_path, lines, name=name)
    assert [q.answers for q in actual] == [(("One", 0), ("one", 10)), (), (("Apfel", 24),)]
    assert actual[1].place == f"{tmp_path / name}:2" and actual[2].context == CONTEXT
    with pytest.raises(ConfigError, match=r"a.jsonl?:2: not valid JSON"):
        read(tmp_path, lines.replace('"id": 1', '"id": '), name=name)
    with pytest.raises(ConfigError, match=r"a.jsonl?:1: record.context is None"):
        read(tmp_path, lines.replace(json.dumps(CONTEXT), "null", 1), name=name)


def test_records_may_be_in_a_list_or_under_data(tmp_path):
    expected = [
        (q.identity, q.answers) for q in read(tmp_path, "\n".join(map(json.dumps, RECORDS)))
    ]
    for content in (RECORDS, {"version": "2", "data": RECORDS}):
        actual = read(tmp_path, json.dumps(content, indent=1))
        assert [(q.identity, q.answers) for q in actual] == expected


def test_misplaced_answers_follow_the_policy(tmp_path, capsys):
    record = {"id": 1, "context": CONTEXT, "question": "?"}
    bad = {**record, "answers": {"text": ["Apfel"], "answer_start": [3]}}
    twice = {**record, "id": 2, "answers": {"text": ["e"], "answer_start": [0]}}
    partly = {**record, "id": 3, "answers": {"text": ["pear", "One"], "answer_start": [0, 0]}}
    lines = [json.dumps(x) for x in (bad, twice, partly)]
    with pytest.raises(ConfigError, match="the answer is at 24; task.misplaced=find uses this"):
        read(tmp_path, lines[0])
    (actual,) = read(tmp_path, lines[0], "find")
    assert actual.answers == (("Apfel", 24),)
    assert (
        "wrong answer_start, moved to the position of their text (task.misplaced=find): 1,"
        in capsys.readouterr().err
    )
    with pytest.raises(ConfigError, match="answer_start=0 of the answer 'e'"):
        read(tmp_path, "\n".join(lines[:2]), "find")
    (remaining,) = read(tmp_path, "\n".join(lines), "skip")
    assert (remaining.identity, remaining.answers) == ("3", (("One", 0),))
    printed = capsys.readouterr().err
    assert (
        "wrong answer_start, dropped (task.misplaced=skip): 3, the first in "
        f"{tmp_path / 'a.json'}:1" in printed
    )
