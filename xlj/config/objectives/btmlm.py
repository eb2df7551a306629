"""BTMLM, of ERNIE-M."""

import dataclasses
from collections.abc import Sequence

from xlj.config.fields import ConfigError
from xlj.config.objectives.mlm import Masking
from xlj.config.objectives.options import option, register
from xlj.config.sections import Sections


@register("btmlm")
@dataclasses.dataclass(frozen=True)
class BackTranslation(Masking):
    """BTMLM."""

    rows = "sentences"
    implementation = "xlj.objectives.btmlm:objective"
    reads = ("model.language_embeddings",)

    pseudo_ratio: float = option(
        0.1, "pseudo-tokens generated for each token of the source sentence", low=0.01, high=0.2
    )
    target_alpha: float = option(
        0.0,
        "exponent that the target language is drawn with, p_j ~ m_j^a over the other languages; "
        "0 means uniformly",
        low=0,
        high=1,
    )
    generation: str = option(
        "argmax",
        "the most likely pseudo-token, or one drawn from the softmax",
        choices=("argmax", "sample"),
    )

    def check(self, path: str, config: Sections) -> None:
        """Refuses languages without embeddings."""
        super().check(path, config)
        if config.model.language_embeddings == "none":
            raise ConfigError(
                f"{path} asks for tokens of a language by its embedding; set "
                "model.language_embeddings=predicted (or all)"
            )

    def check_languages(self, path: str, languages: Sequence[str], where: str) -> None:
        """Refuses a single language."""
        if len(languages) < 2:
            raise ConfigError(f"{path} generates in another language; {where} names only one")
