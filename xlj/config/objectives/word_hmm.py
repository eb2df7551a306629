"""Word alignment as a hidden Markov model of translation (ours)."""

import dataclasses

from xlj.config.objectives.options import Options, option, register


@register("word_hmm")
@dataclasses.dataclass(frozen=True)
class WordHMM(Options):
    """Each sentence generated from its translation, word by word, in both directions."""

    rows = "bitext"
    implementation = "xlj.objectives.word_hmm:objective"

    batch_rows: int = option(0, "rows a step, of some pairs each; 0 turns the objective off", low=0)
    layer: int = option(
        0, "layer whose vectors generate the other sentence; 0 is the embeddings", low=0
    )
    agreement: float = option(
        0.9, "share of an alignment that is learned from what both directions expect", low=0, high=1
    )
    normaliser_weight: float = option(
        0.1, "weight of the loss that teaches scores to need no normalisation", low=0
    )
