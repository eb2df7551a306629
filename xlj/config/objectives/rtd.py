"""MRTD and TRTD, of XLM-E."""

import dataclasses

from xlj.config.objectives.mlm import Masking
from xlj.config.objectives.options import option, register


@dataclasses.dataclass(frozen=True)
class ReplacedTokenDetection(Masking):
    """Replaced token detection. The weight is that of the discriminator, XLM-E's lambda."""

    implementation = "xlj.objectives.rtd:objective"
    reads = ("model.generator_layers", "model.generator_embeddings")

    weight: float = option(50.0, "weight of the discriminator's loss, lambda", low=0)
    generator_weight: float = option(1.0, "weight of the generator's loss", low=0)
    temperature: float = option(1.0, "temperature of the generator's samples", low=0.01)


@register("mrtd")
class MultilingualRTD(ReplacedTokenDetection):
    """MRTD."""

    rows = "text"


@register("trtd")
class TranslationRTD(ReplacedTokenDetection):
    """TRTD."""

    rows = "pairs"
