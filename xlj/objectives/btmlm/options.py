"""Options of BTMLM (ERNIE-M)."""

import dataclasses
from collections.abc import Sequence

from xlj.config.fields import ConfigError
from xlj.config.objectives import option
from xlj.config.sections import Sections
from xlj.objectives.masking.options import MaskingOptions


@dataclasses.dataclass(frozen=True)
class BackTranslation(MaskingOptions):
    """Back-translation masked language modelling (BTMLM, ERNIE-M): generates pseudo-tokens in
    another language, then predicts the selected tokens from the sentence and the pseudo-tokens."""

    rows = "sentences"
    implementation = "xlj.objectives.btmlm.loss:objective"
    reads = ("model.language_embeddings",)

    pseudo_ratio: float = option(
        0.1,
        "number of pseudo-tokens to generate per token of the source sentence, rounded up",
        low=0.01,
        high=0.2,
    )
    target_alpha: float = option(
        0.0,
        "exponent a of the choice of a target language: the probability of another language j is "
        "proportional to m_j^a, for m_j tokens of language j; 0: all other languages are equally "
        "likely",
        low=0,
        high=1,
    )
    generation: str = option(
        "argmax",
        "choice of a pseudo-token. argmax: the most likely; sample: drawn from the softmax",
        choices=("argmax", "sample"),
    )

    def check(self, path: str, config: Sections) -> None:
        """Refuses a model without language embeddings."""
        super().check(path, config)
        if config.model.language_embeddings == "none":
            raise ConfigError(
                f"{path} needs language embeddings to generate tokens of a language; set "
                "model.language_embeddings=predicted (or all)"
            )

    def check_languages(self, path: str, languages: Sequence[str], where: str) -> None:
        """Refuses text in a single language."""
        if len(languages) < 2:
            raise ConfigError(
                f"{path} generates tokens in another language, but {where} names only one language"
            )
