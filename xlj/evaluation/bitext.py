"""Scores of translation search: accuracy, F1 as mteb computes it, and LASER's xsim and xsim++.

- Accuracy: the share of sentences whose nearest sentence by cosine is the translation.
- F1: mteb's score of bitext mining. The nearest sentence by cosine is a prediction of a class; F1
  is averaged over classes, weighted by their numbers of sentences.
- xsim: the share of sentences whose best candidate is another text than the translation. The
  candidates are the four nearest sentences by cosine; the best one has the highest ratio margin.
- xsim++: xsim into one language, with changed sentences of this language as further candidates.

Sources: Heffernan et al. (2022), "Bitext Mining Using Distilled Sentence Representations for
Low-Resource Languages"; Chen et al. (2023), "xSIM++"; Muennighoff et al. (2023), "MTEB".
"""

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from xlj.evaluation.metrics import accuracy, weighted_f1
from xlj.io.json_file import Record
from xlj.retrieval.changed_sentences import Changed
from xlj.retrieval.search import NEIGHBOURS, Nearest, Neighbours, neighbours, rank_by_margin

Texts = Sequence[Hashable]
"""The sentences of a side. Equal sentences are equal translations for xsim."""


class Scores(NamedTuple):
    """Scores of one direction, from 0 to 1. For xsim, which counts errors, lower is better."""

    accuracy: float
    f1: float
    xsim: float


class BothDirections(NamedTuple):
    """The scores of a pair of languages."""

    source_to_target: Scores
    target_to_source: Scores

    def as_json(self) -> dict[str, float]:
        """Returns F1 and xsim of both directions, with names such as `f1_source_to_target`."""
        return {
            f"{name}_{direction}": getattr(scores, name)
            for name in ("f1", "xsim")
            for direction, scores in self._asdict().items()
        }


class Found(NamedTuple):
    """The candidates of all sentences in both directions, best first.

    Attributes:
      by_cosine: the four nearest sentences, [sentences, 4].
      by_margin: the one of them with the highest margin, [sentences, 1].
    """

    by_cosine: Nearest
    by_margin: Nearest


def search(source: np.ndarray, target: np.ndarray) -> Found:
    """Searches the nearest sentences.

    Args:
      source, target: the vectors, float [n, width] and [m, width].
    """
    by_cosine = Nearest(
        neighbours(source, target, NEIGHBOURS), neighbours(target, source, NEIGHBOURS)
    )
    return Found(by_cosine, rank_by_margin(*by_cosine))


def score(
    found: Found, texts: tuple[Texts, Texts], translations: np.ndarray | None = None
) -> BothDirections:
    """Scores a search in both directions.

    Args:
      texts: the sentences of both sides.
      translations: int [targets], the index of the source that each target translates; None if
        source i and target i are translations. Sources without a target are distractors.
    """
    targets = np.arange(len(texts[1]))
    sources = targets if translations is None else translations
    by_cosine, by_margin = found
    return BothDirections(
        _score(by_cosine.targets, by_margin.targets, sources, targets, texts[1]),
        _score(by_cosine.sources, by_margin.sources, targets, sources, texts[0]),
    )


def _score(
    by_cosine: Neighbours,
    by_margin: Neighbours,
    queries: np.ndarray,
    expected: np.ndarray,
    texts: Texts,
) -> Scores:
    """Scores one direction.

    Args:
      by_cosine, by_margin: candidates of all sentences, best first.
      queries: int [pairs], the sentences that have a translation.
      expected: int [pairs], the translations.
      texts: the sentences that were searched.
    """
    nearest = by_cosine.indices[queries, 0].tolist()
    numbers = _number_texts(texts)
    is_error = numbers[by_margin.indices[queries, 0]] != numbers[expected]
    gold = expected.tolist()
    return Scores(accuracy(nearest, gold), weighted_f1(nearest, gold), float(is_error.mean()))


def _number_texts(texts: Texts) -> np.ndarray:
    """Returns a number for each text, int64 [texts]; equal texts have equal numbers."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)


class PlusPlus(NamedTuple):
    """The result of xsim++.

    Attributes:
      error: the share of sentences whose best candidate is not the translation, from 0 to 1.
      errors: the number of errors by kind of change; `misaligned` if the best candidate is another
        sentence, or a changed form of another sentence.
    """

    error: float
    errors: dict[str, int]


def score_plus_plus(
    source: np.ndarray,
    target: np.ndarray,
    texts: Sequence[str],
    changed: Sequence[Changed],
    changed_vectors: np.ndarray,
) -> PlusPlus:
    """Computes xsim++ from a language into the language of the changed sentences.

    Args:
      source, target: the vectors of n translations, float [n, width].
      texts: the sentences of the target.
      changed, changed_vectors: the changed sentences, and their vectors, float [changed, width].
    """
    by_margin = search(source, np.concatenate([target, changed_vectors])).by_margin
    candidates = [*(Changed(text, "", "") for text in texts), *changed]
    errors: Counter[str] = Counter()
    for text, place in zip(texts, by_margin.targets.indices[:, 0].tolist(), strict=True):
        best = candidates[place]
        if best.text != text:
            errors[best.kind if best.original == text else "misaligned"] += 1
    return PlusPlus(errors.total() / len(texts), dict(sorted(errors.items())))


class SetScores(NamedTuple):
    """The scores of a set of parallel texts.

    Attributes:
      sentences: the number of sentences in each language.
      pivot: the language that the table shows beside each language; empty if there is none.
      pairs: the scores by (source language, target language), in both orders.
      plus_plus: xsim++ from each language into the pivot; empty without changed sentences.
      changed: the number of changed sentences.
    """

    languages: list[str]
    sentences: int
    pivot: str
    pairs: dict[tuple[str, str], Scores]
    plus_plus: dict[str, PlusPlus]
    changed: int

    def as_json(self) -> Record:
        """Returns all scores, from 0 to 1, and their means over pairs."""
        rows: list[Record] = []
        for (source, target), scores in self.pairs.items():
            row = {"source": source, "target": target, **scores._asdict()}
            if target == self.pivot and source in self.plus_plus:
                error, errors = self.plus_plus[source]
                row |= {"xsimpp": error, "xsimpp_errors": errors}
            rows.append(row)
        means: Record = _mean(self.pairs.values())._asdict()
        if self.plus_plus:
            means["xsimpp"] = statistics.fmean(each.error for each in self.plus_plus.values())
        return {
            "languages": self.languages,
            "sentences": self.sentences,
            "changed_sentences": self.changed,
            "mean": means,
            "pairs": rows,
        }

    def as_table(self) -> str:
        """Returns a table with a line for each language and their mean, 80 columns wide."""
        languages = [name for name in self.languages if name != self.pivot]
        groups = self._groups()
        heads, titles = [" " * _NAME], [f"{'language':{_NAME}}"]
        for title, columns in groups.items():
            heads.append(f" {f' {title} ':-^{_NUMBER * len(columns) - 1}}")
            titles += [f"{column:>{_NUMBER}}" for column in columns]
        lines = ["".join(heads), "".join(titles)]
        rows = [
            [column(name) for columns in groups.values() for column in columns.values()]
            for name in languages
        ]
        for name, row in zip(languages, rows, strict=True):
            lines.append(_line(name, row))
        lines.append(_line("mean", [statistics.fmean(x) for x in zip(*rows, strict=True)]))
        return "\n".join(lines)

    def _groups(self) -> dict[str, dict[str, Callable[[str], float]]]:
        """Returns the columns of the table: functions of a language, by title and group."""

        def columns(pairs: Callable[[str], Sequence[tuple[str, str]]]) -> dict:
            def column(name: str) -> Callable[[str], float]:
                return lambda x: getattr(_mean([self.pairs[pair] for pair in pairs(x)]), name)

            return {"xsim": column("xsim"), "F1": column("f1"), "acc.": column("accuracy")}

        others = {name: [x for x in self.languages if x != name] for name in self.languages}
        into_all = columns(lambda name: [(name, other) for other in others[name]])
        from_all = columns(lambda name: [(other, name) for other in others[name]])
        if not self.pivot:
            return {"from the language": into_all, "into the language": from_all}
        into = columns(lambda name: [(name, self.pivot)])
        if self.plus_plus:
            into = {"xsim++": lambda name: self.plus_plus[name].error, **into}
        groups = {f"into {self.pivot}": into}
        groups[f"from {self.pivot}"] = columns(lambda name: [(self.pivot, name)])
        if len(self.pairs) > 2 * (len(self.languages) - 1):
            groups["all pairs"] = columns(
                lambda name: [pair for x in others[name] for pair in ((name, x), (x, name))]
            )
        return groups

    def matrix(self) -> tuple[list[str], list[str], np.ndarray]:
        """Returns the source languages, the target languages in the same order, and xsim in
        percent, float64 [sources, targets]; NaN for pairs without scores."""
        languages = list(dict.fromkeys(itertools.chain(*self.pairs)))
        sources, targets = (
            [name for name in languages if any(name == pair[side] for pair in self.pairs)]
            for side in (0, 1)
        )
        values = [
            [100 * self.pairs[a, b].xsim if (a, b) in self.pairs else np.nan for b in targets]
            for a in sources
        ]
        return sources, targets, np.array(values)


_NAME, _NUMBER = 10, 7  # widths of the columns of names and of numbers


def _line(name: str, shares: Sequence[float]) -> str:
    """Returns a line of the table, in percent."""
    return f"{name:{_NAME}}"[:_NAME] + "".join(f"{100 * x:{_NUMBER}.2f}" for x in shares)


def _mean(scores: Iterable[Scores]) -> Scores:
    return Scores(*map(statistics.fmean, zip(*scores, strict=True)))


def score_set(
    vectors: Mapping[str, np.ndarray],
    texts: Mapping[str, Sequence[str]],
    pivot: str = "",
    with_all: bool = True,
    changed: tuple[Sequence[Changed], np.ndarray] | None = None,
    progress: Callable[[], object] = bool,
) -> SetScores:
    """Scores the pairs of languages of a set.

    Args:
      vectors: by language, the vectors of n sentences, float [n, width].
      texts: by language, the n sentences; sentence i of all languages is a translation.
      pivot: the language of the changed sentences, and of all pairs without `with_all`.
      with_all: whether to score all pairs of languages, not only those with the pivot.
      changed: changed sentences of the pivot, and their vectors, float [changed, width].
      progress: called after each pair.
    """
    pairs: dict[tuple[str, str], Scores] = {}
    for first, second in itertools.combinations(vectors, 2):
        if with_all or pivot in (first, second):
            found = search(vectors[first], vectors[second])
            scores = score(found, (texts[first], texts[second]))
            pairs[first, second], pairs[second, first] = scores
            progress()
    plus_plus = {}
    for language in vectors if changed else ():
        if changed and language != pivot:
            plus_plus[language] = score_plus_plus(
                vectors[language], vectors[pivot], texts[pivot], *changed
            )
            progress()
    sentences = len(next(iter(texts.values())))
    changed_count = len(changed[0]) if changed else 0
    return SetScores(list(vectors), sentences, pivot, pairs, plus_plus, changed_count)
