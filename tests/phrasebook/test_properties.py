"""Every language covers all concepts, and realises every meaning with correct words and links."""

import re

import pytest

from xlj.phrasebook import LANGUAGES, draw, pair, realise, world
from xlj.phrasebook.corpus import GRAMMARS
from xlj.phrasebook.meaning import align

UPOS = set("ADJ ADP ADV AUX CCONJ DET NOUN NUM PART PRON PROPN PUNCT SCONJ VERB".split())
CONTENT = {"NOUN", "VERB", "ADJ", "PROPN"}
DRAWN = [draw(11, index) for index in range(1500)]

CONCEPTS = {
    "noun": tuple(world.NOUN_FIELD),
    "verb": (*world.ACTS, "have", "like"),
    "weather": world.WEATHER,
    "adjective": tuple(
        {adjective for group in world.ADJECTIVES.values() for adjective in group}
        | set(world.STATES)
    ),
    "name": world.WOMEN + world.MEN,
    "surname": world.SURNAMES,
    "place": world.CITIES + world.COUNTRIES,
    "organisation": world.ORGANISATIONS,
    "time": tuple({time for times in world.TIMES.values() for time in times}),
}
"""All concepts that a language must have a word for, by kind."""

# The tables of a grammar in which each kind of concept is looked up
TABLES = {
    "noun": ("NOUNS",),
    "verb": ("VERBS",),
    "weather": ("VERBS", "WEATHER"),
    "adjective": ("ADJECTIVES",),
    "name": ("NAMES",),
    "surname": ("NAMES",),
    "place": ("NAMES",),
    "organisation": ("NAMES",),
    "time": ("TIMES",),
}
SPELT_ALIKE = {("en", "adjective")}  # concepts whose English spelling is the word itself


@pytest.mark.parametrize(
    "language, kind",
    [(language, kind) for language in LANGUAGES for kind in TABLES
     if (language, kind) not in SPELT_ALIKE],
)  # fmt: skip
def test_every_concept_is_in_every_language(language, kind):
    known: set[str] = set()
    for table in TABLES[kind]:
        known |= set(getattr(GRAMMARS[language], table, ()))
    missing = [concept for concept in CONCEPTS[kind] if concept not in known]
    assert not missing


@pytest.mark.parametrize("language", ["hi", "zh"])
def test_names_are_in_the_script_of_the_language(language):
    assert [name for name in GRAMMARS[language].NAMES.values() if re.search("[A-Za-z]", name)] == []


def test_there_are_many_concepts_of_each_kind():
    sizes = {kind: len(concepts) for kind, concepts in CONCEPTS.items()}
    assert sizes["noun"] >= 100 and sizes["verb"] >= 40 and sizes["adjective"] >= 30
    assert sizes["name"] >= 60 and sizes["place"] >= 40 and sizes["organisation"] >= 5
    assert all(len(set(concepts)) == len(concepts) for concepts in CONCEPTS.values())


@pytest.fixture(scope="module")
def meanings():
    return [draw(3, index) for index in range(60_000)]


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_draws_vary(language, meanings):
    texts = {realise(meaning, language).text for meaning in meanings}
    assert len(texts) > 50_000


def test_every_frame_and_every_concept_is_drawn(meanings):
    first_meanings = meanings[:20_000]
    assert len({meaning.frame for meaning in first_meanings}) >= 13
    seen: set[str] = set()
    for meaning in first_meanings:
        for clause in meaning.clauses:
            seen |= {clause.predicate, str(clause.attribute), str(clause.time)}
            for p in (clause.subject, clause.object, clause.recipient, clause.place,
                      clause.complement):  # fmt: skip
                if p:
                    seen |= {p.concept, str(p.adjective), str(p.surname)}
    expected_concepts = {concept for concepts in CONCEPTS.values() for concept in concepts}
    assert expected_concepts - seen == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_words_are_well_formed(language):
    for meaning in DRAWN:
        sentence = realise(meaning, language)
        inside = ""
        for word in sentence.words:
            assert word.form and not any(space in word.form for space in " _\n")
            assert word.upos in UPOS and word.slots
            tag, _, kind = word.entity.partition("-")
            assert tag == "O" or kind in ("PER", "LOC", "ORG")
            if tag == "I":
                assert kind == inside, "I- must continue an entity of the same kind"
            inside = kind
        assert sentence.text[-1] in ".?।。？"
        assert sentence.text.count("  ") == 0
        first = sentence.text.lstrip("¿")[0]
        assert first == first.upper()


@pytest.mark.parametrize("language", LANGUAGES)
def test_entity_tags_match_the_meaning(language):
    for meaning in DRAWN[:500]:
        participants = []
        for clause in meaning.clauses:
            for p in (clause.subject, clause.object, clause.recipient, clause.place):
                participants += [p, p.owner] if p else []
        for kind, tag in (("name", "B-PER"), ("place", "B-LOC"), ("organisation", "B-ORG")):
            expected = sum(p is not None and p.kind == kind for p in participants)
            words = realise(meaning, language).words
            assert sum(word.entity == tag for word in words) == expected


def test_chinese_has_no_spaces_and_native_punctuation():
    for meaning in DRAWN:
        text = realise(meaning, "zh").text
        assert not set(text) & set(" ,.?") and text[-1] in "。？"


@pytest.mark.parametrize("source", LANGUAGES)
@pytest.mark.parametrize("target", LANGUAGES)
def test_alignment_is_complete_and_symmetric(source, target):
    for meaning in DRAWN[:250]:
        result = pair(meaning, source, target)
        sizes = len(result.source.words), len(result.target.words)
        assert all(0 <= i < sizes[0] and 0 <= j < sizes[1] for i, j in result.alignment)
        for side, sentence in enumerate((result.source, result.target)):
            aligned = {link[side] for link in result.alignment}
            unaligned = [
                word.form
                for position, word in enumerate(sentence.words)
                if word.upos in CONTENT and position not in aligned
            ]
            assert not unaligned, (result.source.text, result.target.text)
        transposed = frozenset((j, i) for i, j in result.alignment)
        assert align(result.target, result.source) == transposed


def test_aligned_names_of_persons_are_equal():
    """A person's name is aligned to the same name and to no other proper noun."""
    for meaning in DRAWN:
        result = pair(meaning, "en", "de")
        for i, j in result.alignment:
            source, target = result.source.words[i], result.target.words[j]
            if source.entity.endswith("PER") and target.upos == "PROPN":
                assert target.form.rstrip("'s") == source.form.rstrip("s")


def test_the_error_for_an_unknown_language_names_it():
    with pytest.raises(ValueError, match="'xx'.*en, de, fr"):
        realise(DRAWN[0], "xx")
