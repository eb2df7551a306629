"""The objectives of fine-tuning. They are no part of a pretraining config: a fine-tuning run has
one of them in the place of the others."""

import dataclasses

from xlj.config.fields import ConfigTree
from xlj.config.objectives.options import Options


@dataclasses.dataclass(frozen=True)
class Supervised(Options, path="train"):
    """The options of an objective of fine-tuning; it reads a kind of rows of its own.

    Attributes:
      length: tokens in a row; its labels come behind them.
      labels: names of classes or tags; of answers there are none.
    """

    implementation = "xlj.objectives.supervised:objective"
    sampled_by = "rows"

    length: int = 0
    labels: tuple[str, ...] = ()

    def path(self, name: str) -> str:
        """Where `batch_rows` is in a fine-tuning config."""
        return "train"

    def text_length(self, length: int) -> int:
        """The tokens of a row, without its labels."""
        return self.length


class Classification(Supervised):
    """A class of a sentence, or of two that are read together."""

    rows = "classification"


class PairClassification(Supervised):
    """A class of two sentences that are read apart."""

    rows = "pair_classification"


class Tagging(Supervised):
    """A tag of each word."""

    rows = "tagging"


class QuestionAnswering(Supervised):
    """The first and the last token of an answer."""

    rows = "question_answering"


def supervised_in(record: ConfigTree) -> ConfigTree:
    """The options of fine-tuning in a config as a checkpoint records it; none of pretraining."""
    found = record["objectives"].keys() & SUPERVISED.keys()
    return record["objectives"][found.pop()] if found else {}


SUPERVISED: dict[str, type[Supervised]] = {
    options.rows: options
    for options in (Classification, PairClassification, Tagging, QuestionAnswering)
}
"""The objectives of fine-tuning by name, which is that of their rows."""
