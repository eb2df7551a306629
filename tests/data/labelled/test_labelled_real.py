"""Real labelled files, if present: every line and question becomes an example."""

import gzip
import json
from pathlib import Path

import pytest

from xlj.config.task import Task
from xlj.data.labelled import task_sources

FOLDER = Path(__file__).parents[3].parent / "shared" / "data"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"there is no real data at {FOLDER}")

UPOS = ("ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X").split()
TAGGING = Task(kind="tagging")


def read(name, language, task):
    return task_sources.read(str(FOLDER / name), language, task)


def raw(name):
    return gzip.decompress((FOLDER / name).read_bytes()).decode()


@pytest.mark.parametrize(
    "name, columns, expected",
    [
        ("xnli/dev/sw.tsv.gz", ("premise", "hypothesis", "label"), 3),
        ("pawsx/test/fr.tsv.gz", ("sentence1", "sentence2", "label"), 2),
        ("sick/dev.en.tsv.gz", ("sentence1", "sentence2", "label"), 3),
    ],
)
def test_every_line_of_a_table_is_an_example(name, columns, expected):
    examples = read(name, "", Task(kind="classification", columns=columns))
    assert len(examples) == raw(name).count("\n") - 1
    assert len(task_sources.label_set(examples, ())) == expected
    assert not any(text.startswith('"') and '""' in text for one in examples for text in one.texts)


@pytest.mark.parametrize("name", ["pos/ewt/dev.en.conll.gz", "pos/pud/test.fi.conll.gz"])
def test_every_word_has_its_part_of_speech(name):
    examples = read(name, "en", Task(kind="tagging", labels=tuple(UPOS)))
    rows = [line for line in raw(name).split("\n") if "\t" in line]
    tagged_words = [row for one in examples for row in zip(one.words, one.tags, strict=True)]
    assert ["\t".join(row) for row in tagged_words] == rows


def test_every_word_of_a_file_with_entities_is_read():
    examples = read("ner/panx/dev.ja.tsv.gz", "ja", TAGGING)
    text = raw("ner/panx/dev.ja.tsv.gz")
    assert sum(len(one.words) for one in examples) == text.count("\t")
    assert sum(one.words.count("#") for one in examples) > 100
    assert len(task_sources.label_set(examples, ())) == 7


@pytest.mark.parametrize(
    "name",
    [
        "xquad/xquad.ar.json.gz",
        "mlqa/dev/dev-context-zh-question-zh.json.gz",
        "tydiqa/dev.sw.json.gz",
    ],
)
def test_every_question_is_read_with_answers(name):
    examples = read(name, "", Task(kind="question_answering"))
    articles = json.loads(raw(name))["data"]
    entries = [qa for one in articles for paragraph in one["paragraphs"] for qa in paragraph["qas"]]
    assert [one.question for one in examples] == [qa["question"] for qa in entries]
    assert all(one.answers for one in examples)
    assert len({one.identity for one in examples}) == len(examples)
