"""Options of replaced token detection: MRTD and TRTD (XLM-E)."""

import dataclasses

from xlj.config.fields import Section, Unused, key, shared
from xlj.config.objectives import option
from xlj.config.sections import Sections
from xlj.objectives.masking.options import MaskingOptions


def _for_detection(config: Sections, path: str) -> Unused | None:
    """Checks that an objective with a generator is on."""
    objectives = config.objectives_on().values()
    if any(isinstance(options, ReplacedTokenDetection) for options in objectives):
        return None
    return Unused("objectives.mrtd.batch_size and objectives.trtd.batch_size are 0")


@dataclasses.dataclass(frozen=True)
class Generator(Section, path="objectives.generator"):
    """The generator, which MRTD and TRTD train together."""

    layers: int = key(
        4,
        "number of layers of the generator, which is as wide as the model",
        low=1,
        used_when=_for_detection,
    )
    embeddings: str = key(
        "shared",
        "embeddings of the generator. shared: the embeddings of the model; generator_only: the "
        "embeddings of the model, which only the generator trains; separate: other embeddings",
        choices=("shared", "generator_only", "separate"),
        used_when=_for_detection,
    )


@dataclasses.dataclass(frozen=True)
class ReplacedTokenDetection(MaskingOptions):
    """Replaced token detection. MRTD and TRTD train the same generator."""

    implementation = "xlj.objectives.rtd.loss:objective"
    state_keys = ("generator",)
    generator_weight = 1.0
    """Weight of the generator's loss (ELECTRA, XLM-E)."""
    temperature = 1.0
    """Temperature of the generator's samples (ELECTRA)."""

    weight: float = option(50.0, "weight of the discriminator's loss (lambda in XLM-E)", low=0)
    generator: Generator = shared(Generator)

    @property
    def extra_layers(self) -> int:
        """The number of layers of the generator."""
        return self.generator.layers


class MultilingualRTD(ReplacedTokenDetection):
    """Multilingual replaced token detection (MRTD, XLM-E) on monolingual text."""

    rows = "text"


class TranslationRTD(ReplacedTokenDetection):
    """Translation replaced token detection (TRTD, XLM-E) on sentence pairs."""

    rows = "pairs"
