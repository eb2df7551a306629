"""Options of cross-lingual contrast, XLCO (InfoXLM)."""

import dataclasses
from collections.abc import Callable, MutableMapping

from xlj.config.fields import ConfigError, Value
from xlj.config.objectives import option
from xlj.config.row_kinds import max_pairs
from xlj.config.sections import Sections
from xlj.objectives.masking.options import MaskingOptions


@dataclasses.dataclass(frozen=True)
class CrossLingualContrast(MaskingOptions):
    """Cross-lingual contrast (XLCO, InfoXLM): distinguishes the translation of a sentence from a
    queue of sentences of earlier steps, whose vectors (keys) a momentum encoder computed. Selected
    tokens are replaced as in MMLM, but not predicted."""

    rows = "bitext"
    implementation = "xlj.objectives.xlco.loss:objective"
    state_keys = ("queue", "layer")

    layer: int = option(
        -1,
        "layer whose `<s>` vectors are contrasted; -1: the layer at two thirds of the depth",
        low=-1,
    )
    temperature: float = option(0.25, "temperature of the softmax", low=0.001)
    queue: int = option(131_072, "number of keys from earlier steps that serve as negatives", low=1)
    momentum: float = option(0.9999, "momentum of the encoder that computes keys", low=0, high=1)
    mixup: bool = option(
        True, "concatenate each pair with another pair of the batch (mixup contrast)"
    )

    def check(self, path: str, config: Sections) -> None:
        """Refuses layer 0, whose vectors are all equal, and a queue smaller than one step."""
        super().check(path, config)
        if not self.layer:
            raise ConfigError(
                f"{path}.layer=0: before the first layer the first tokens of all sentences have "
                "the same vector; set a layer of at least 1, or -1"
            )
        keys = self.batch_size * max_pairs(config.data.pair_length)
        if self.queue < keys:
            raise ConfigError(
                f"{path}.queue={self.queue} is too small for the keys of a step: up to {keys} from "
                f"{path}.batch_size={self.batch_size} rows of "
                f"data.pair_length={config.data.pair_length}"
            )

    @classmethod
    def shrink(
        cls, values: MutableMapping[str, Value], rows: int, layer: Callable[[int], int]
    ) -> None:
        """Changes the values for the variant `tiny`, with a small queue."""
        super().shrink(values, rows, layer)
        if "queue" in values:
            values["queue"] = 8 * rows
