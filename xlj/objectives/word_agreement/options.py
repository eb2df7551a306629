"""Options of self-training of word alignment (Dou and Neubig, 2021)."""

import dataclasses

from xlj.config.objectives import Options, option


@dataclasses.dataclass(frozen=True)
class WordAgreement(Options):
    """Self-training of word alignment: links that both directions agree on become more likely."""

    rows = "bitext"
    implementation = "xlj.objectives.word_agreement.loss:objective"
    scale = 20.0
    """The factor of cosines before the softmax, as in the head of word links."""

    layer: int = option(
        -1,
        "layer whose vectors are compared; 0: the embeddings, -1: the layer at two thirds of the "
        "depth",
        low=-1,
    )
    consistency_weight: float = option(
        1.0, "weight of the loss that makes both directions' probabilities consistent", low=0
    )
