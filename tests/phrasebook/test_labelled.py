"""The labelled tasks have correct labels, parallel languages and disjoint splits."""

import hashlib
from collections import Counter
from dataclasses import astuple, replace
from functools import cache
from itertools import islice

import pytest

from xlj.phrasebook import LANGUAGES, draw, realise
from xlj.phrasebook.drawing import COLOURS
from xlj.phrasebook.labelled import SIZES, examples
from xlj.phrasebook.labelled.examples import (
    SPLITS,
    AnsweredQuestion,
    LabelledTexts,
    sentences,
    split_of,
)
from xlj.phrasebook.labelled.inference import LABELS, OPPOSITE, inferences
from xlj.phrasebook.labelled.paraphrases import paraphrases
from xlj.phrasebook.labelled.questions import ROLES, questions
from xlj.phrasebook.meaning import Meaning
from xlj.phrasebook.world import CITIES, COUNTRIES

GOLDEN: dict[str, str] = {
    "nli": "8a3b5cfe1c1d7becdb5ceb1e8522beea151e8821938e06cb573a258a83b0b3cc",
    "paraphrases": "de0106aea97ab7ef8b92be02149e31811b3454a437d1c04bf32b1a6317b69064",
    "tags": "465fc100b9a7cc48a1d9a94f3ff469d7ae6320175a1b7798c63b2115ebf81025",
    "entities": "422a14e74c3331fca9d6b71c220977e4d8d87b1f1021cb0661049d133b0f72db",
    "questions": "3cfe2e57bc8a013186a0960544fe4252eedb9e0d2c58ebac5c885a83604853c9",
}


@cache
def dev(task, language):
    return tuple(examples(task, language, "dev"))


@cache
def pairs(split):
    return tuple(islice(paraphrases(split), 200))


@cache
def questions_in(split):
    return tuple(islice(questions(split), 200))


@pytest.fixture(scope="module")
def by_split():
    """Returns the first inferences of every split, by split."""
    return {split: tuple(islice(inferences(split), 600)) for split in SPLITS}


@pytest.mark.parametrize("task", SIZES)
def test_examples_never_change(task):
    digest = hashlib.sha256()
    for language in LANGUAGES:
        for example in dev(task, language)[:60]:
            digest.update(repr(astuple(example)).encode())
    assert digest.hexdigest() == GOLDEN[task]


def test_tasks_have_their_sizes():
    for language in LANGUAGES:
        assert all(len(dev(task, language)) == 500 for task in SIZES)
        assert len(list(examples("tags", language, "test"))) == 500
    assert len(list(examples("tags", "sw", "train"))) == SIZES["tags"] == 3_000


@pytest.mark.parametrize("task", SIZES)
def test_languages_are_parallel(task):
    """Examples at the same place have the same meaning, so labels, names and questions agree."""

    def shared(example):
        if isinstance(example, LabelledTexts):
            return example.label
        if isinstance(example, AnsweredQuestion):
            return len(example.answers)
        return sum(tag.startswith("B-") for tag in example.tags) if task == "entities" else None

    english = [shared(example) for example in dev(task, "en")]
    for language in LANGUAGES:
        assert [shared(example) for example in dev(task, language)] == english


@pytest.mark.parametrize("split", SPLITS)
def test_all_events_of_an_example_belong_to_its_split(split, by_split):
    """No event of dev or test is in train: a clause has one split, in every task."""
    for inference in by_split[split]:
        parts = inference.first.clauses + inference.second.clauses
        assert {split_of(clause) for clause in parts} == {split}
    for pair in pairs(split):
        assert {split_of(c) for c in pair.first.clauses + pair.second.clauses} == {split}
    for meaning in islice(sentences(split), 200):
        assert {split_of(clause) for clause in meaning.clauses} == {split}
    for example in questions_in(split):
        assert split_of(example.question.clauses[0]) == split


def test_details_do_not_change_the_split():
    clauses = [clause for index in range(300) for clause in draw(5, index).clauses]
    for clause in clauses:
        variant = replace(clause, time=None, negative=not clause.negative, very=False)
        assert split_of(variant) == split_of(clause)
    shares = Counter(split_of(clause) for clause in clauses)
    assert 0.4 < shares["train"] / len(clauses) < 0.6 and min(shares.values()) > 50


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_sentence_is_in_two_splits(language):
    def texts(split):
        tagged = islice(examples("tags", language, split), 500)
        return {" ".join(example.words) for example in tagged}

    train, dev, test = (texts(split) for split in SPLITS)
    assert not (train & dev or train & test or dev & test)
    texts_of_split = [
        {realise(a.question, language).text for a in questions_in(split)} for split in SPLITS
    ]
    assert not (
        texts_of_split[0] & texts_of_split[1]
        or texts_of_split[0] & texts_of_split[2]
        or texts_of_split[1] & texts_of_split[2]
    )


# Inference


def bare(clause):
    """Removes the details, order and polarity of a clause."""
    parts = {"time": None, "time_first": False, "very": False, "negative": False}
    for role in ("subject", "object", "complement"):
        p = getattr(clause, role)
        if p:
            parts[role] = replace(p, adjective=None, count=0, plural=p.plural and not p.count)
    if clause.predicate not in ("live", "be", "exist") and clause.relation == "at":
        if clause.subject:
            parts["place"] = None
    return replace(clause, **parts)


def details_of(clause):
    """Returns the details of a clause."""
    details = {("time", clause.time), ("place", clause.place), ("very", clause.very)}
    for role in ("subject", "object", "complement"):
        p = getattr(clause, role)
        details.add((role, p.adjective if p else None))
    return {(what, value) for what, value in details if value}


def judge(premise, hypothesis):
    """Returns the label of a hypothesis given one clause of the premise, by logic on details."""
    against = "contradiction" if premise.negative != hypothesis.negative else "entailment"
    if bare(premise) == bare(hypothesis):
        one, other = details_of(premise), details_of(hypothesis)
        if one == other or (other < one and not premise.negative):
            return against
        return "neutral"
    differences = [name for name in ("predicate", "attribute", "place")
                   if getattr(premise, name) != getattr(hypothesis, name)]  # fmt: skip
    if premise.negative or premise.subject != hypothesis.subject or len(differences) != 1:
        return "neutral"
    one, other = getattr(premise, differences[0]), getattr(hypothesis, differences[0])
    if differences == ["place"]:
        kinds = [{p.concept in CITIES, p.concept in COUNTRIES} for p in (one, other) if p]
        exclusive = premise.predicate in ("be", "live") and len(kinds) == 2 and kinds[0] == kinds[1]
    else:
        exclusive = OPPOSITE.get(one) == other or {one, other} <= COLOURS
    if not exclusive:
        return "neutral"
    return "entailment" if hypothesis.negative else "contradiction"


def test_labels_follow_from_the_meanings(by_split):
    kinds = Counter()
    for inference in (inference for split in SPLITS for inference in by_split[split]):
        (hypothesis,) = inference.second.clauses
        verdicts = {judge(premise, hypothesis) for premise in inference.first.clauses} - {"neutral"}
        assert verdicts <= {inference.label}
        assert verdicts or inference.label == "neutral", (
            realise(inference.first, "en").text, realise(inference.second, "en").text
        )  # fmt: skip
        kinds[inference.label, hypothesis.negative, len(inference.first.clauses)] += 1
    assert len(kinds) == 12 and min(kinds.values()) > 20


def test_a_hypothesis_alone_has_little_information(by_split):
    """Labels are balanced, half of each are negated, and all have the same amount of detail."""
    drawn = [inference for split in SPLITS for inference in by_split[split]]
    assert set(Counter(inference.label for inference in drawn).values()) == {
        len(drawn) // len(LABELS)
    }
    mean_details = []
    for label in LABELS:
        claims = [inference.second.clauses[0] for inference in drawn if inference.label == label]
        assert sum(claim.negative for claim in claims) == len(claims) // 2
        mean_details.append(sum(len(details_of(claim)) for claim in claims) / len(claims))
    assert max(mean_details) - min(mean_details) < 0.35


def test_now_adds_no_detail_to_an_event_in_progress(by_split):
    for inference in (
        inference
        for split in SPLITS
        for inference in by_split[split]
        if inference.label == "neutral"
    ):
        (hypothesis,) = inference.second.clauses
        for premise in inference.first.clauses:
            if bare(premise) == bare(hypothesis) and hypothesis.tense == "now":
                assert details_of(hypothesis) - details_of(premise) - {("time", "now")}


# Paraphrases


def events(meaning):
    return Counter(replace(clause, time_first=False) for clause in meaning.clauses)


def test_paraphrases_have_the_same_events_and_negatives_do_not():
    same_words = 0
    for pair in pairs("dev"):
        assert (events(pair.first) == events(pair.second)) == (pair.label == "1")
        assert pair.first.link == pair.second.link
        words = [Counter(word.form.lower() for word in realise(m, "en").words)
                 for m in (pair.first, pair.second)]  # fmt: skip
        same_words += pair.label == "0" and words[0] == words[1]
    assert sum(pair.label == "1" for pair in pairs("dev")) == 100
    assert same_words > 35, "too few negatives have exactly the same words"


@pytest.mark.parametrize("language", LANGUAGES)
def test_texts_differ_and_only_paraphrases_have_the_same_clauses(language):
    def parts(meaning):
        clauses = [Meaning("", (replace(c, time_first=False),)) for c in meaning.clauses]
        return sorted(realise(clause, language).text for clause in clauses)

    for example in dev("paraphrases", language):
        assert example.texts[0] != example.texts[1]
    for pair in pairs("dev"):
        assert (parts(pair.first) == parts(pair.second)) == (pair.label == "1")


# Words


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_word_has_its_tags(language):
    upos = set("ADJ ADP ADV AUX CCONJ DET NOUN NUM PART PRON PROPN PUNCT SCONJ VERB".split())
    seen = set()
    for tagged, named in zip(dev("tags", language), dev("entities", language), strict=True):
        assert tagged.words == named.words and all(tagged.words)
        assert len(tagged.tags) == len(named.tags) == len(tagged.words)
        assert tagged.tags[-1] == "PUNCT" and set(tagged.tags) <= upos
        for tag, before in zip(named.tags, ("O", *named.tags), strict=False):
            assert tag[0] != "I" or before in ("B" + tag[1:], tag)
        seen |= set(tagged.tags) | set(named.tags)
    assert {"NOUN", "VERB", "PROPN", "ADV", "B-PER", "I-PER", "B-LOC", "B-ORG"} <= seen


# Questions


@pytest.mark.parametrize("language", LANGUAGES)
def test_answers_are_at_their_offsets_in_the_context(language):
    answered = 0
    for example in dev("questions", language):
        assert example.question[-1] in "?？"
        for text, start in example.answers:
            assert text and example.context[start : start + len(text)] == text
            assert text == text.strip() and not set(text) & set(".,?!。，？।")
            answered += 1
    assert answered == 450


def test_a_question_has_one_answer_or_none():
    """The verb of the question occurs once in the document, or never."""
    roles = Counter()
    for example in questions_in("dev"):
        (question,) = example.question.clauses
        verbs = [clause.predicate for meaning in example.document for clause in meaning.clauses]
        assert verbs.count(question.predicate) == (example.where is not None)
        if example.where:
            sentence, clause = example.where
            premise = example.document[sentence].clauses[clause]
            assert premise.predicate == question.predicate and not premise.negative
            roles[example.role] += 1
        assert question.question == example.role
    assert set(roles) == set(ROLES) and max(roles.values()) - min(roles.values()) < 30


@pytest.mark.parametrize(
    "task, language, split, known",
    [("nil", "en", "dev", "'nil'.*nli, paraphrases, tags, entities, questions"),
     ("nli", "xx", "dev", "'xx'.*en, de, fr, es, sw, tr, hi, zh"),
     ("nli", "en", "validation", "'validation'.*train, dev, test")],
)  # fmt: skip
def test_unknown_names_are_refused_immediately(task, language, split, known):
    with pytest.raises(ValueError, match=known):
        examples(task, language, split)
