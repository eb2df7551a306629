"""Exact match and F1 of answers to questions: SQuAD 1.1's, and MLQA's."""

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
    "ar": "ال",  # anywhere in a word; the released pattern has a second branch that never matches
}
_HAN = re.compile(r"([\u4e00-\u9fa5])")


class Scores(NamedTuple):
    """Means over questions, each between 0 and 1."""

    exact_match: float
    f1: float


def squad(answer: str) -> str:
    """An answer as SQuAD 1.1 compares it: lower case, without ASCII punctuation and English
    articles. XQuAD and TyDiQA-GoldP do so in every language (Rajpurkar et al., 2016)."""
    kept = "".join(c for c in answer.lower() if c not in string.punctuation)
    return " ".join(re.sub(_ARTICLES["en"], " ", kept).split())


def mlqa(answer: str, language: str) -> str:
    """An answer as MLQA compares it (Lewis et al., 2020, and its released script): lower case,
    without any script's punctuation and the language's articles; in Chinese, each Han character is
    a word.

    Args:
      language: of the answer and its context. None has articles but MLQA's own Arabic, English,
        German, Spanish and Vietnamese (of Hindi and Chinese so MLQA, of others ours).
    """
    letters = (c for c in answer.lower() if c not in string.punctuation)
    kept = "".join(c for c in letters if not unicodedata.category(c).startswith("P"))
    if language in _ARTICLES:
        kept = re.sub(_ARTICLES[language], " ", kept)
    if language == "zh":
        kept = _HAN.sub(r" \1 ", kept)
    return " ".join(kept.split())


def score(
    answers: Mapping[str, str],
    questions: Sequence[tuple[str, Iterable[str]]],
    normalise: Callable[[str], str] = squad,
) -> Scores:
    """Scores of answers, each against that of its gold answers which fits best.

    A question without an answer counts 0. F1 is that of the words that both have, as often as both
    have them; it is 0 where nothing is left of an answer, though both be equal (as in SQuAD 1.1).

    Args:
      answers: by the question's id.
      questions: ids, and the gold answers of each.
      normalise: what is compared of an answer.

    Raises:
      ValueError: if there are no questions, or one without gold answers.
    """
    if not questions:
        raise ValueError("there are no questions")
    exact = overlap = 0.0
    for identity, golds in questions:
        truths = [normalise(gold) for gold in golds]
        if not truths:
            raise ValueError(f"question {identity!r} has no gold answer")
        if identity in answers:
            answer = normalise(answers[identity])
            exact += answer in truths
            overlap += max(_overlap(answer.split(), truth.split()) for truth in truths)
    return Scores(exact / len(questions), overlap / len(questions))


def _overlap(answer: list[str], truth: list[str]) -> float:
    both = (Counter(answer) & Counter(truth)).total()
    return shares.f1_scores(both, len(answer), len(truth)).f1
