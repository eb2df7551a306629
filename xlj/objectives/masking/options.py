"""Options that all objectives which mask tokens share."""

import dataclasses

from xlj.config.fields import ConfigError, Section, Unused, key, shared
from xlj.config.objectives import Options
from xlj.config.sections import Sections


def _for_masking(config: Sections, path: str) -> Unused | None:
    """Checks that an objective that masks tokens is on."""
    if any(isinstance(options, MaskingOptions) for options in config.objectives_on().values()):
        return None
    return Unused("no objective that is on masks tokens", allowed_in_recipes=True)


def _for_pairs(config: Sections, path: str) -> Unused | None:
    """Checks that an objective that masks the tokens of sentence pairs is on."""
    objectives = config.objectives_on().values()
    if any(isinstance(options, MaskingOptions) and options.reads_pairs for options in objectives):
        return None
    return Unused("no objective that is on masks sentence pairs", allowed_in_recipes=True)


@dataclasses.dataclass(frozen=True)
class Masking(Section, path="objectives.masking"):
    """The selection and replacement of tokens in all objectives that mask tokens."""

    rate: float = key(
        0.15,
        "share of tokens to select; all objectives but XLCO predict the selected tokens",
        low=0,
        high=0.9,
        used_when=_for_masking,
    )
    pair_rate: float = key(
        0.0,
        "rate for sentence pairs, where the translation helps to predict; 0: the value of rate",
        low=0,
        high=0.9,
        used_when=_for_pairs,
    )
    mask_share: float = key(
        0.8,
        "share of selected tokens replaced by <mask>",
        low=0,
        high=1,
        used_when=_for_masking,
    )
    random_share: float = key(
        0.1,
        "share of selected tokens replaced by a random token; the remaining selected tokens stay "
        "unchanged",
        low=0,
        high=1,
        used_when=_for_masking,
    )


@dataclasses.dataclass(frozen=True)
class MaskingOptions(Options):
    """The common options of objectives that mask tokens.

    XLCO replaces the selected tokens but does not predict them.
    """

    masking: Masking = shared(Masking)

    @property
    def reads_pairs(self) -> bool:
        """Whether the rows contain sentence pairs."""
        return bool(self.row_kind.source == "data.parallel")

    @property
    def mask_rate(self) -> float:
        """The share of tokens to select."""
        masking = self.masking
        return masking.pair_rate or masking.rate if self.reads_pairs else masking.rate

    def check(self, path: str, config: Sections) -> None:
        """Refuses shares that add up to more than 1."""
        masking = self.masking
        if masking.mask_share + masking.random_share > 1:
            raise ConfigError(
                f"objectives.masking.mask_share={masking.mask_share} and random_share="
                f"{masking.random_share} add up to more than 1; lower one of them"
            )
