"""Measures of a model on plain text that do not depend on its vocabulary, to compare a model before
and after it was adapted."""

import dataclasses
from collections.abc import Mapping

from xlj.data.tokenizer import fertility
from xlj.evaluation import word_loss
from xlj.inference.pretrained import Pretrained
from xlj.io.json_file import Record
from xlj.models.encoder import layer_or_middle
from xlj.retrieval.embedder import Embedder
from xlj.retrieval.nearest import accuracy, nearest

FILE = "adaptation.json"
"""The file of a workdir with the measures before and after, if `xlj.adapt` made it."""

LABELS = {
    "pieces_per_word": "pieces per word",
    "unknown_percent": "<unk>, % of pieces",
    "nats_per_character": "held-out loss, nats per character",
    "accuracy_percent": "translations found, % (accuracy@1)",
}
"""The measures, in order, as people read them."""

Scores = dict[str, dict[str, float]]
"""By measure, then by language or pair."""


@dataclasses.dataclass(frozen=True)
class TestText:
    """Text that no training reads: lines by language, and both sides of sentence pairs by pair."""

    lines: Mapping[str, list[str]]
    pairs: Mapping[str, tuple[list[str], list[str]]]
    layer: int
    """Whose vectors find translations; -1 means two thirds of the layers."""


def measure(pretrained: Pretrained, text: TestText) -> Scores:
    """All measures that the model has: a model without a prediction head has no loss."""
    scores: Scores = {name: {} for name in LABELS}
    for language, lines in text.lines.items():
        counts = fertility.measure(pretrained.vocabulary, lines)
        scores["pieces_per_word"][language] = counts.pieces_per_word
        scores["unknown_percent"][language] = 100 * counts.unknown_share
        if word_loss.has_head(pretrained):
            loss = word_loss.measure(pretrained, lines)
            scores["nats_per_character"][language] = loss.per_character
    layer = layer_or_middle(text.layer, pretrained.model.layers)
    embedder = Embedder(pretrained, [layer], "mean")
    for pair, (first, second) in text.pairs.items():
        found = accuracy(nearest(embedder.embed(first, False)[0], embedder.embed(second, False)[0]))
        scores["accuracy_percent"][pair] = 50 * sum(found)
    return {name: values for name, values in scores.items() if values}


def table(before: Record, after: Record) -> list[list[str]]:
    """A row for each measure and language: its name, the value before and after."""
    rows = [["measure", "of", "before", "after"]]
    for name, label in LABELS.items():
        for of in after.get(name) or before.get(name, {}):
            values = [side.get(name, {}).get(of) for side in (before, after)]
            shown = ["" if value is None else f"{value:.{_digits(name)}f}" for value in values]
            rows.append([label, of, *shown])
    return rows


def _digits(name: str) -> int:
    return 3 if name == "nats_per_character" else 2 if name == "pieces_per_word" else 1
