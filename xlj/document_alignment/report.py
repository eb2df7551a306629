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
    """Returns the confidence of a document: the mean confidence of its sentences, where a sentence
    has the confidence of its pair, and 0 without a counterpart."""
    sizes = [len(step.source) + len(step.target) for step in steps]
    total = sum(step.confidence * size for step, size in zip(steps, sizes, strict=True))
    return total / max(1, sum(sizes))


def summarise(aligned: Aligned, threshold: float) -> dict[str, Any]:
    """Returns the report of two documents, as JSON values.

    Args:
      aligned: the documents and all steps of their alignment.
      threshold: pairs with a lower confidence are counted as left out.
    """
    steps = aligned.pairs
    pairs = [step for step in steps if not step.is_gap]
    kinds = Counter(pair.kind for pair in pairs)
    worst = sorted(pairs, key=lambda pair: pair.confidence)[:WORST]
    return {
        "confidence": round(confidence(steps), 4),
        "source_sentences": len(aligned.source.texts),
        "target_sentences": len(aligned.target.texts),
        "pairs": len(pairs),
        "left_out": sum(pair.confidence < threshold for pair in pairs),
        "kinds": {kind: round(n / len(pairs), 4) for kind, n in sorted(kinds.items())},
        "gaps": _gaps(steps),
        "worst": [_shown(aligned, pair) for pair in worst],
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
        "source_lines": numbers[0],
        "target_lines": numbers[1],
        "source": source,
        "target": target,
    }
