"""Measures a model on plain text, to compare it before and after an adaptation."""

import dataclasses
from collections.abc import Mapping

from xlj.data.tokenizer import fertility
from xlj.evaluation import word_loss
from xlj.evaluation.adaptation_record import LABELS, Scores
from xlj.inference.pretrained import Pretrained
from xlj.models.encoder import layer_or_middle
from xlj.retrieval.embedder import Embedder
from xlj.retrieval.nearest import accuracy, nearest


@dataclasses.dataclass(frozen=True)
class TestText:
    """Held-out text, which occurs in no training text.

    Attributes:
      lines: sentences by language.
      pairs: (source sentences, target sentences) by language pair.
      layer: the layer of the sentence vectors; -1 for the layer at two thirds of the depth.
    """

    lines: Mapping[str, list[str]]
    pairs: Mapping[str, tuple[list[str], list[str]]]
    layer: int


def measure(pretrained: Pretrained, text: TestText) -> Scores:
    """Measures a model on held-out text: the measures of `adaptation_record.LABELS`.

    A measure is left out if it has no values. For example, a model without a head for masked tokens
    has no loss.
    """
    scores: Scores = {name: {} for name in LABELS}
    for language, lines in text.lines.items():
        counts = fertility.measure(pretrained.vocabulary, lines)
        scores["pieces_per_word"][language] = counts.pieces_per_word
        scores["unknown_percent"][language] = 100 * counts.unknown_share
    if word_loss.has_head(pretrained):
        losses = word_loss.measure(pretrained, text.lines)
        scores["nats_per_character"] = {name: loss.per_character for name, loss in losses.items()}
    layer = layer_or_middle(text.layer, pretrained.model.layers)
    embedder = Embedder(pretrained, [layer], "mean")
    for pair, (first, second) in text.pairs.items():
        sides = [embedder.embed(side, with_bar=False)[0] for side in (first, second)]
        scores["accuracy_percent"][pair] = 50 * sum(accuracy(nearest(*sides)))
    return {name: values for name, values in scores.items() if values}
