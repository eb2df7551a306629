"""Retrieval: ERNIE-M's with the hardest negative, NT-Xent with all."""

import dataclasses

from xlj.config.objectives.options import Options, option, register


@register("retrieval")
@dataclasses.dataclass(frozen=True)
class Retrieval(Options):
    """Translations told apart from other sentences of the batch; ERNIE-M's with the defaults."""

    rows = "bitext"
    implementation = "xlj.objectives.retrieval:objective"

    batch_rows: int = option(0, "rows a step, of some pairs each; 0 turns the objective off", low=0)
    negatives: str = option(
        "hardest",
        "what a translation is told apart from: the most similar other sentence of its side of "
        "the batch, by binary cross-entropy; or all others of both sides, by a softmax (NT-Xent)",
        choices=("hardest", "all"),
    )
    layer: int = option(
        -1,
        "layer of the averaged sentence vectors, 0 is the embeddings; -1 means two thirds of the "
        "layers",
        low=-1,
    )
    scale: float = option(20.0, "what cosines are multiplied by to be logits", low=0.01)
