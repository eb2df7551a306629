"""Options of MMLM and TLM, and the common options of objectives that mask tokens."""

import dataclasses

from xlj.config.fields import ConfigError
from xlj.config.objectives import Options, option
from xlj.config.sections import Sections


@dataclasses.dataclass(frozen=True)
class Masking(Options):
    """The common options of objectives that mask tokens.

    XLCO replaces the selected tokens but does not predict them.
    """

    mask_rate: float = option(
        0.15,
        "share of tokens to select; all objectives but XLCO predict the selected tokens",
        low=0,
        high=0.9,
    )
    mask_share: float = option(0.8, "share of selected tokens replaced by <mask>", low=0, high=1)
    random_share: float = option(
        0.1,
        "share of selected tokens replaced by a random token; the remaining selected tokens stay "
        "unchanged",
        low=0,
        high=1,
    )

    def check(self, path: str, config: Sections) -> None:
        """Refuses shares that add up to more than 1."""
        if self.mask_share + self.random_share > 1:
            raise ConfigError(
                f"{path}.mask_share={self.mask_share} and {path}.random_share={self.random_share} "
                "add up to more than 1; lower one of them"
            )


class MultilingualMLM(Masking):
    """Multilingual masked language modelling (MMLM) on monolingual text."""

    rows = "text"
    implementation = "xlj.objectives.mlm.loss:objective"


class TranslationLM(Masking):
    """Translation language modelling (TLM, XLM): masked language modelling on sentence pairs."""

    rows = "pairs"
    implementation = "xlj.objectives.mlm.loss:objective"
