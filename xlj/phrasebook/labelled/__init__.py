"""Labelled tasks with the same meanings in every language of the phrasebook.

Example i of a split has the same meaning in all languages. No event of dev or test occurs in train
(`examples`).
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import islice
from typing import Any

from xlj.phrasebook.corpus import check_language, pair, realise
from xlj.phrasebook.labelled.examples import (
    SPLITS,
    AnsweredQuestion,
    Example,
    LabelledMeanings,
    LabelledTexts,
    LinkedWords,
    TaggedWords,
    sentences,
)
from xlj.phrasebook.labelled.inference import inferences
from xlj.phrasebook.labelled.paraphrases import paraphrases
from xlj.phrasebook.labelled.questions import Asked, questions, span_of
from xlj.phrasebook.meaning import Meaning

SIZES = {
    "nli": 24_000,
    "paraphrases": 4_000,
    "tags": 3_000,
    "entities": 3_000,
    "questions": 3_000,
}
"""The tasks, and the number of training examples in every language; dev and test have 500 each."""
PAIR_SIZES = {"links": 3_000}
"""The same for tasks of a language pair."""


def examples(task: str, language: str, split: str) -> Iterator[Example]:
    """Yields the labelled examples of a task in a language. Every call yields the same examples.

    - 'nli': premise and hypothesis; 'entailment', 'neutral' or 'contradiction'
    - 'paraphrases': two sentences; '1' if they have the same meaning, else '0'
    - 'tags': the words of a sentence and their universal parts of speech
    - 'entities': the words of a sentence and BIO tags of PER, LOC and ORG
    - 'questions': a question about a document; one in ten has no answer in its document
    - 'links': the words of a sentence and of its translation, and the links between them. The
      language is a pair, such as en-de

    Raises:
      ValueError: for an unknown task, language or split; the message lists the known ones.
    """
    languages = language.split("-") if task in PAIR_SIZES else [language]
    for one in languages:
        check_language(one)
    if task in PAIR_SIZES and len(languages) != 2:
        raise ValueError(f"{language!r} is not a pair of languages, such as en-de")
    sizes = SIZES | PAIR_SIZES
    for what, value, known in (("task", task, tuple(sizes)), ("split", split, SPLITS)):
        if value not in known:
            raise ValueError(f"unknown {what} {value!r}: choose from {', '.join(known)}")
    draw, write = _TASKS[task]
    return (write(drawn, language) for drawn in _drawn(draw, split, sizes[task]))


@cache
def _drawn(draw: Callable[[str], Iterator[Any]], split: str, train: int) -> tuple[Any, ...]:
    """Draws the meanings of examples, once for all languages."""
    return tuple(islice(draw(split), train if split == "train" else 500))


def _texts(drawn: LabelledMeanings, language: str) -> LabelledTexts:
    first, second = realise(drawn.first, language), realise(drawn.second, language)
    return LabelledTexts((first.text, second.text), drawn.label)


def _words(meaning: Meaning, language: str, tag: str) -> TaggedWords:
    sentence = realise(meaning, language)
    return TaggedWords(
        tuple(sentence.text[start:end] for start, end in sentence.spans),
        tuple(getattr(word, tag) for word in sentence.words),
    )


def _links(meaning: Meaning, languages: str) -> LinkedWords:
    source, target = languages.split("-")
    both = pair(meaning, source, target)
    first, second = (
        tuple(side.text[start:end] for start, end in side.spans)
        for side in (both.source, both.target)
    )
    return LinkedWords((first, second), tuple(sorted(both.alignment)))


def _question(asked: Asked, language: str) -> AnsweredQuestion:
    document = [realise(meaning, language) for meaning in asked.document]
    space = "" if language == "zh" else " "
    context = space.join(sentence.text for sentence in document)
    answers: tuple[tuple[str, int], ...] = ()
    if asked.where:
        at, clause = asked.where
        before = sum(len(sentence.text) + len(space) for sentence in document[:at])
        start, end = (before + edge for edge in span_of(document[at], clause, asked.role))
        answers = ((context[start:end], start),)
    return AnsweredQuestion(realise(asked.question, language).text, context, answers)


_TASKS: dict[str, tuple[Callable[[str], Iterator[Any]], Callable[[Any, str], Example]]] = {
    "nli": (inferences, _texts),
    "paraphrases": (paraphrases, _texts),
    "tags": (sentences, partial(_words, tag="upos")),
    "entities": (sentences, partial(_words, tag="entity")),
    "questions": (questions, _question),
    "links": (sentences, _links),
}
