"""MRTD and TRTD, of XLM-E."""

import dataclasses

from xlj.config.objectives.mlm import Masking
from xlj.config.objectives.options import option, register


@dataclasses.dataclass(frozen=True)
class ReplacedTokenDetection(Masking):
    """Replaced token detection. The weight is that of the discriminator, XLM-E's lambda. MRTD and
    TRTD train one generator."""

    implementation = "xlj.objectives.rtd:objective"
    shared = ("generator_layers", "generator_embeddings")

    weight: float = option(50.0, "weight of the discriminator's loss, lambda", low=0)
    generator_weight: float = option(1.0, "weight of the generator's loss", low=0)
    temperature: float = option(1.0, "temperature of the generator's samples", low=0.01)
    generator_layers: int = option(4, "layers of the generator, as wide as the model", low=1)
    generator_embeddings: str = option(
        "shared",
        "the generator's embeddings: shared, shared but trained by the generator only, or its own",
        choices=("shared", "generator_only", "separate"),
    )

    @property
    def extra_layers(self) -> int:
        """The generator's."""
        return self.generator_layers


@register("mrtd")
class MultilingualRTD(ReplacedTokenDetection):
    """MRTD."""

    rows = "text"


@register("trtd")
class TranslationRTD(ReplacedTokenDetection):
    """TRTD."""

    rows = "pairs"
