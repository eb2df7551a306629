"""Summaries of an alignment: confidence, shares of kinds, gaps, and the worst pairs."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from xlj.document_alignment.aligner import Pair
from xlj.document_alignment.pair_formats import Aligned

WORST = 10
"""The number of pairs with the lowest confidence that a report shows."""
_SHOWN = 80  # characters of a text in a report


def confidence(steps: Sequence[Pair]) -> float:
    """Returns the confidence of documents: the mean confidence of their sentences, where a sentence
    has the confidence of its pair, and 0 without a counterpart."""
    sizes = [len(step.source) + len(step.target) for step in steps]
    total = sum(step.confidence * size for step, size in zip(steps, sizes, strict=True))
    return total / max(1, sum(sizes))


def summarise(documents: Sequence[Aligned], threshold: float) -> dict[str, Any]:
    """Returns the report of pairs of documents, as JSON values.

    If there are several, the report has totals, and `documents`: a list of the pairs of documents,
    the least confident first.

    Args:
      documents: pairs of documents, and all steps of their alignments.
      threshold: pairs with a lower confidence are counted as left out.
    """
    result = _counts(documents, threshold)
    worst = sorted(
        ((aligned, pair) for aligned in documents for pair in aligned.pairs if not pair.is_gap),
        key=lambda of_document: of_document[1].confidence,
    )
    result["worst"] = [_shown(*of_document) for of_document in worst[:WORST]]
    if len(documents) > 1:
        of_each = [named(each) | _counts([each], threshold) for each in documents]
        result["documents"] = sorted(of_each, key=lambda each: each["confidence"])
    return result


def named(aligned: Aligned) -> dict[str, str]:
    """Returns the names of both documents; empty for documents without names."""
    return dict(zip(("source", "target"), aligned.names, strict=False))


def _counts(documents: Sequence[Aligned], threshold: float) -> dict[str, Any]:
    """Returns the confidence and the counts of all documents together."""
    steps = [step for aligned in documents for step in aligned.pairs]
    pairs = [step for step in steps if not step.is_gap]
    kinds = Counter(pair.kind for pair in pairs)
    gaps = [_gaps(aligned.pairs) for aligned in documents]
    return {
        "confidence": round(confidence(steps), 4),
        "source_sentences": sum(len(aligned.source.texts) for aligned in documents),
        "target_sentences": sum(len(aligned.target.texts) for aligned in documents),
        "pairs": len(pairs),
        "left_out": sum(pair.confidence < threshold for pair in pairs),
        "kinds": {kind: round(n / len(pairs), 4) for kind, n in sorted(kinds.items())},
        "gaps": {
            name: (max if name == "longest" else sum)(each[name] for each in gaps)
            for name in gaps[0]
        },
    }


def _gaps(steps: Sequence[Pair]) -> dict[str, int]:
    """Counts gaps, and the sentences of each side in them."""
    runs: list[int] = []
    for before, step in zip([None, *steps[:-1]], steps, strict=True):
        if step.is_gap:
            if before is None or not before.is_gap:
                runs.append(0)
            runs[-1] += 1
    skipped = [step for step in steps if step.is_gap]
    return {
        "count": len(runs),
        "longest": max(runs, default=0),
        "source_sentences": sum(len(step.source) for step in skipped),
        "target_sentences": sum(len(step.target) for step in skipped),
    }


def _shown(aligned: Aligned, pair: Pair) -> dict[str, Any]:
    texts = [" ".join(side) for side in aligned.sides(pair)]
    source, target = (text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..." for text in texts)
    numbers = aligned.numbers(pair)
    return {
        "confidence": round(pair.confidence, 4),
        **{f"{side}_document": name for side, name in named(aligned).items()},
        "source_lines": numbers[0],
        "target_lines": numbers[1],
        "source": source,
        "target": target,
    }
