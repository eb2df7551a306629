"""Labelled TFDS datasets: synthetic examples, read with the features of the real builders."""

import sys

import mocked_tfds
import pytest

from xlj.config import ConfigError
from xlj.data.labelled import task_sources
from xlj.data.labelled.examples import Words
from xlj.io.processes import in_child

XNLI, PAWS_X = "tfds:xnli#validation", "tfds:paws_x_wiki/de#train"
XQUAD, MLQA = "tfds:xquad/de#test", "tfds:mlqa/de#validation"
TYDI_QA, TYDI_QA_SW = "tfds:tydi_qa#train", "tfds:tydi_qa/goldp#validation-sw"
WIKIANN, UD = "tfds:wikiann/de#test", "tfds:universal_dependencies/de_gsd#dev"


@pytest.fixture(scope="module")
def output():
    sources = [(XNLI, "sw"), (XNLI, "th"), (TYDI_QA, "sw"), (TYDI_QA, "de"), (TYDI_QA_SW, "sw")]
    sources += [(source, "de") for source in (PAWS_X, XQUAD, MLQA, WIKIANN, UD)]
    sources.append(("tfds:xquad/eo#test", "eo"))
    examples = in_child("reading mocked datasets", mocked_tfds.load, sources)
    assert "tensorflow" not in sys.modules
    return examples


@pytest.mark.slow
@pytest.mark.seqio
def test_sentence_pairs_are_read(output):
    pair = ("premise sw", "hypothesis sw")
    assert output[XNLI, "sw"] == [
        (pair, "contradiction", f"{XNLI}, example 1"),
        (pair, "entailment", f"{XNLI}, example 2"),
    ]
    assert output[XNLI, "th"].startswith(f"{XNLI}, example 1: no language th; the example has ar, ")
    assert output[PAWS_X, "de"] == [
        (("eins", "zwei ü"), "paraphrase", f"{PAWS_X}, example 1"),
        (("eins", ""), None, f"{PAWS_X}, example 2"),
    ]


@pytest.mark.slow
@pytest.mark.seqio
def test_questions_are_read(output):
    first, second = output[XQUAD, "de"]
    answers = (("Äpfel", 4), ("Äpfel", 15))
    assert first == ("a", "a?", "ein Äpfelchen, Äpfel", answers, f"{XQUAD}, example 1")
    assert second[3] == ()
    assert "example 1 (question a): answer_start=1 of the answer 'wrong'" in output[MLQA, "de"]
    assert "cannot load it" in output["tfds:xquad/eo#test", "eo"]


@pytest.mark.slow
@pytest.mark.seqio
def test_tydi_qa_separates_languages_by_ids_or_by_splits(output):
    assert [row[0] for row in output[TYDI_QA, "sw"]] == ["swahili-1-0", "swahili-1-1"]
    assert len(output[TYDI_QA_SW, "sw"]) == 3
    assert "TyDiQA has no de" in output[TYDI_QA, "de"]


@pytest.mark.slow
@pytest.mark.seqio
def test_tagged_words_are_read(output):
    assert output[WIKIANN, "de"] == [
        (("Ada", "spricht"), ("B-PER", "O"), f"{WIKIANN}, example 1", ())
    ]
    assert output[UD, "de"] == [
        (("zu", "dem", "Haus"), ("ADP", "DET", "NOUN"), f"{UD}, example 1", ())
    ]


def test_names_of_sources_are_parsed():
    assert task_sources.parse_tfds(UD) == ("universal_dependencies/de_gsd", "dev")
    assert task_sources.parse_tfds(UD).example is Words
    assert [
        task_sources.parse_tfds(source).has_all_languages for source in (XNLI, TYDI_QA, XQUAD)
    ] == [
        True,
        True,
        False,
    ]
    assert not task_sources.parse_tfds(TYDI_QA_SW).has_all_languages
    with pytest.raises(ConfigError, match="expected tfds:NAME#SPLIT"):
        task_sources.parse_tfds("tfds:xnli")
