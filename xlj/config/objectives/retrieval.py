"""Options of the retrieval objective: ERNIE-M's hardest negative, or NT-Xent with all negatives."""

import dataclasses

from xlj.config.objectives.options import Options, option, register


@register("retrieval")
@dataclasses.dataclass(frozen=True)
class Retrieval(Options):
    """Retrieval: distinguishes the translation of a sentence from other sentences of the batch. The
    defaults are those of ERNIE-M."""

    rows = "bitext"
    implementation = "xlj.objectives.retrieval:objective"

    batch_size: int = option(
        0, "rows per step, each with several pairs; 0: the objective is off", low=0
    )
    negatives: str = option(
        "hardest",
        "sentences from which the translation is distinguished. hardest: of the other sentences on "
        "the translation's side of the batch, only the most similar, with binary cross-entropy; "
        "all: all other sentences of the batch, on both sides, with a softmax (NT-Xent)",
        choices=("hardest", "all"),
    )
    layer: int = option(
        -1,
        "layer of the averaged sentence vectors; 0: the embeddings, -1: the layer at two thirds of "
        "the depth",
        low=-1,
    )
    scale: float = option(20.0, "factor by which cosines are multiplied to get logits", low=0.01)
