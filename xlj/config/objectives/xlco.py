"""XLCO, of InfoXLM."""

import dataclasses
from collections.abc import Callable, MutableMapping

from xlj.config.fields import ConfigError, Value
from xlj.config.objectives.mlm import Masking
from xlj.config.objectives.options import option, register
from xlj.config.row_kinds import max_pairs
from xlj.config.sections import Sections


@register("xlco")
@dataclasses.dataclass(frozen=True)
class Contrast(Masking):
    """InfoXLM's XLCO. Inputs are masked, nothing of them is predicted."""

    rows = "bitext"
    implementation = "xlj.objectives.xlco:objective"
    state_keys = ("queue", "layer")

    layer: int = option(
        -1, "layer of the contrasted vectors; -1 means two thirds of the layers", low=-1
    )
    temperature: float = option(0.25, "temperature of the softmax", low=0.001)
    queue: int = option(131_072, "keys of earlier steps that are contrasted with", low=1)
    momentum: float = option(0.9999, "momentum of the key encoder", low=0, high=1)
    mixup: bool = option(True, "join each pair with another pair of the batch (mixup contrast)")

    def check(self, path: str, config: Sections) -> None:
        """Refuses vectors that are all the same, and a queue that does not hold a step's keys."""
        super().check(path, config)
        if not self.layer:
            raise ConfigError(
                f"{path}.layer=0: before the first layer the first tokens of all sentences are "
                "alike; name a layer from 1 on, or -1"
            )
        keys = self.batch_rows * max_pairs(config.data.pair_length)
        if self.queue < keys:
            raise ConfigError(
                f"{path}.queue={self.queue} may not hold the keys of a step: {keys}, of {path}."
                f"batch_rows={self.batch_rows} rows of data.pair_length={config.data.pair_length}"
            )

    @classmethod
    def shrink(
        cls, values: MutableMapping[str, Value], rows: int, layer: Callable[[int], int]
    ) -> None:
        """Makes the queue small too."""
        super().shrink(values, rows, layer)
        if "queue" in values:
            values["queue"] = 8 * rows
