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

    batch_rows: int = option(
        0, "rows per step, each with several pairs; 0: the objective is off", low=0
    )
    layer: int = option(
        0, "layer whose vectors generate the pieces of the other sentence; 0: the embeddings", low=0
    )
    agreement: float = option(
        0.9,
        "weight of the product of both directions' alignments in the training target of a "
        "direction; the alignment of the direction alone has the weight 1 - agreement",
        low=0,
        high=1,
    )
    normaliser_weight: float = option(
        0.1, "weight of the loss that trains the normalisers of the scores to be 1", low=0
    )
