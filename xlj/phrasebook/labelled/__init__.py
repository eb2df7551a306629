"""Labelled tasks, offline, with the same meanings in every language of the phrasebook.

The train, dev and test of one language say the same as the others' at the same place. No event of
dev or test is told in train (`splits`).
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import islice
from typing import Any

from xlj.phrasebook.labelled.examples import (
    AnsweredQuestion,
    Example,
    LabelledMeanings,
    LabelledTexts,
    TaggedWords,
)
from xlj.phrasebook.labelled.inference import inferences
from xlj.phrasebook.labelled.paraphrases import paraphrases
from xlj.phrasebook.labelled.questions import Asked, questions, span_of
from xlj.phrasebook.labelled.splits import SPLITS, sentences
from xlj.phrasebook.meaning import Meaning
from xlj.phrasebook.realising import check_language, realise

SIZES = {"nli": 24_000, "paraphrases": 4_000, "tags": 3_000, "entities": 3_000, "questions": 3_000}
"""The tasks and the training examples of each, in every language; dev and test have 500."""


def examples(task: str, language: str, split: str) -> Iterator[Example]:
    """The labelled examples of a task in a language, always the same.

    - 'nli': premise and hypothesis; 'entailment', 'neutral' or 'contradiction'
    - 'paraphrases': two sentences; '1' if they mean the same, else '0'
    - 'tags': the words of a sentence and their universal parts of speech
    - 'entities': likewise, with BIO tags of PER, LOC and ORG
    - 'questions': a document and a question; one in ten has no answer in it

    Raises ValueError if there is no such task, language or split; it names those there are.
    """
    check_language(language)
    for what, given, known in (("task", task, tuple(SIZES)), ("split", split, SPLITS)):
        if given not in known:
            raise ValueError(f"unknown {what} {given!r}: choose from {', '.join(known)}")
    draw, write = _TASKS[task]
    return (write(drawn, language) for drawn in _drawn(draw, split, SIZES[task]))


@cache
def _drawn(draw: Callable[[str], Iterator[Any]], split: str, train: int) -> tuple[Any, ...]:
    """The meanings that the examples of all languages tell, drawn once."""
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


def _question(asked: Asked, language: str) -> AnsweredQuestion:
    told = [realise(meaning, language) for meaning in asked.document]
    space = "" if language == "zh" else " "
    context = space.join(sentence.text for sentence in told)
    answers: tuple[tuple[str, int], ...] = ()
    if asked.where:
        at, clause = asked.where
        before = sum(len(sentence.text) + len(space) for sentence in told[:at])
        start, end = (before + edge for edge in span_of(told[at], clause, asked.role))
        answers = ((context[start:end], start),)
    return AnsweredQuestion(realise(asked.question, language).text, context, answers)


_TASKS: dict[str, tuple[Callable[[str], Iterator[Any]], Callable[[Any, str], Example]]] = {
    "nli": (inferences, _texts),
    "paraphrases": (paraphrases, _texts),
    "tags": (sentences, partial(_words, tag="upos")),
    "entities": (sentences, partial(_words, tag="entity")),
    "questions": (questions, _question),
}
