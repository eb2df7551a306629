"""Options of word alignment with a hidden Markov model of translation (ours)."""

import dataclasses

from xlj.config.objectives.options import Options, option, register


@register("word_hmm")
@dataclasses.dataclass(frozen=True)
class WordHMM(Options):
    """Word alignment by a hidden Markov model (ours). The model generates each sentence of a pair
    piece by piece from the other sentence."""

    rows = "bitext"
    implementation = "xlj.objectives.word_hmm:objective"

    batch_size: int = option(
        0, "rows per step, each with several pairs; 0: the objective is off", low=0
    )
    layer: int = option(
        0, "layer whose vectors generate the pieces of the other sentence; 0: the embeddings", low=0
    )
    agreement: float = option(
        0.9,
        "weight a in the training target of each direction: a times the product of the alignments "
        "of both directions, plus 1 - a times the alignment of this direction alone",
        low=0,
        high=1,
    )
    normaliser_weight: float = option(
        0.1, "weight of the loss that drives the normalisers of the softmax towards 1", low=0
    )
