"""Computes exact match and F1 of answers to questions, as SQuAD 1.1 and MLQA define them."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from xlj.evaluation.metrics import shares

_ARTICLES = {
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    "ar": "ال",  # anywhere in a word; the other branch of MLQA's pattern never matches
}
_HAN = re.compile(r"([\u4e00-\u9fa5])")


class AnswerScores(NamedTuple):
    """Means over all questions, between 0 and 1."""

    exact_match: float
    f1: float


def squad(answer: str) -> str:
    """Normalises an answer as SQuAD 1.1 does (Rajpurkar et al., 2016).

    The result is in lower case, without ASCII punctuation and without English articles. XQuAD and
    TyDiQA-GoldP use this function for all languages.
    """
    text = "".join(c for c in answer.lower() if c not in string.punctuation)
    return " ".join(re.sub(_ARTICLES["en"], " ", text).split())


def mlqa(answer: str, language: str) -> str:
    """Normalises an answer as MLQA does (Lewis et al., 2020, and its released script).

    The result is in lower case, without Unicode punctuation and without the articles of the
    language. In Chinese, each Han character is a word.

    Args:
      language: the language of the answer and its context. Articles are removed in Arabic, English,
        German, Spanish and Vietnamese only. MLQA removes none in Hindi and Chinese. In languages
        outside MLQA, removing none is our choice.
    """
    letters = (c for c in answer.lower() if c not in string.punctuation)
    text = "".join(c for c in letters if not unicodedata.category(c).startswith("P"))
    if language in _ARTICLES:
        text = re.sub(_ARTICLES[language], " ", text)
    if language == "zh":
        text = _HAN.sub(r" \1 ", text)
    return " ".join(text.split())


def score(
    answers: Mapping[str, str],
    questions: Sequence[tuple[str, Iterable[str]]],
    normalise: Callable[[str], str] = squad,
) -> AnswerScores:
    """Scores each predicted answer against the gold answer with the highest score.

    A question without a predicted answer scores 0. F1 compares the multisets of words. As in SQuAD
    1.1, F1 is 0 if normalisation leaves no words, even if it leaves none in both answers.

    Args:
      answers: predicted answers by question id.
      questions: question ids, each with its gold answers.
      normalise: function that is applied to all answers before they are compared.

    Raises:
      ValueError: if there are no questions, or a question has no gold answers.
    """
    if not questions:
        raise ValueError("there are no questions")
    exact = overlap = 0.0
    for identity, golds in questions:
        normalised_golds = [normalise(gold) for gold in golds]
        if not normalised_golds:
            raise ValueError(f"question {identity!r} has no gold answer")
        if identity in answers:
            answer = normalise(answers[identity])
            exact += answer in normalised_golds
            overlap += max(_overlap(answer.split(), gold.split()) for gold in normalised_golds)
    return AnswerScores(exact / len(questions), overlap / len(questions))


def _overlap(answer: list[str], gold: list[str]) -> float:
    common = (Counter(answer) & Counter(gold)).total()
    return shares.f1_scores(common, len(answer), len(gold)).f1
