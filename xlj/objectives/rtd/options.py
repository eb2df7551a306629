"""Options of replaced token detection: MRTD and TRTD (XLM-E)."""

import dataclasses

from xlj.config.objectives import option
from xlj.objectives.mlm.options import Masking


@dataclasses.dataclass(frozen=True)
class ReplacedTokenDetection(Masking):
    """Replaced token detection. MRTD and TRTD train the same generator."""

    implementation = "xlj.objectives.rtd.loss:objective"
    shared = ("generator_layers", "generator_embeddings")

    weight: float = option(50.0, "weight of the discriminator's loss (lambda in XLM-E)", low=0)
    generator_weight: float = option(1.0, "weight of the generator's loss", low=0)
    temperature: float = option(1.0, "temperature of the generator's samples", low=0.01)
    generator_layers: int = option(
        4, "number of layers of the generator, which is as wide as the model", low=1
    )
    generator_embeddings: str = option(
        "shared",
        "embeddings of the generator. shared: the embeddings of the model; generator_only: the "
        "embeddings of the model, which only the generator trains; separate: other embeddings",
        choices=("shared", "generator_only", "separate"),
    )

    @property
    def extra_layers(self) -> int:
        """The number of layers of the generator."""
        return self.generator_layers


class MultilingualRTD(ReplacedTokenDetection):
    """Multilingual replaced token detection (MRTD, XLM-E) on monolingual text."""

    rows = "text"


class TranslationRTD(ReplacedTokenDetection):
    """Translation replaced token detection (TRTD, XLM-E) on sentence pairs."""

    rows = "pairs"
