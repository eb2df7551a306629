"""Options of contrast and of retrieval, its case for translations."""

import dataclasses
import math
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, ClassVar

from xlj.config import row_kinds
from xlj.config.choices import POOLINGS
from xlj.config.fields import ConfigError, Unused, UsedWhen, Value
from xlj.config.objectives import Options, option, while_on
from xlj.config.sections import Sections

DIRECTIONS = (
    "query_to_passage",
    "passage_to_query",
    "query_to_query",
    "passage_to_passage",
)
"""The names that `directions` may contain: which texts are ranked for which."""

RANKING = ("softmax", "hardest")
"""Losses that rank the positive above the negatives of the batch."""

LISTED = ("kl", "margin_mse")
"""Losses that compare the positive and the given negatives of an example with a teacher's
scores."""

REASONS = ("shared", "guarded")
"""Why texts are no negatives: they share a text with the example, or the guard dropped them."""

TRAINS_VECTORS = ("contrast", "retrieval", "sentence_distillation", "text_distillation")
"""The objectives that train sentence vectors."""

SCORED = (*LISTED, "cosent")
"""Losses that read the scores of examples."""


def _with_loss(*losses: str) -> UsedWhen:
    """Returns a condition: the objective of the key is on and has one of these losses."""

    def check(config: Sections, path: str) -> Unused | None:
        section = path.rpartition(".")[0]
        if unused := while_on(config, path):
            return unused
        loss = config.objectives_on()[section.rpartition(".")[2]].loss
        return None if loss in losses else Unused(f"{section}.loss is {loss}")

    check.__doc__ = f"only with `loss` = {' or '.join(f'`{loss}`' for loss in losses)}"
    return check


def _with_guard(config: Sections, path: str) -> Unused | None:
    """only with `guard`"""
    section = path.rpartition(".")[0]
    if unused := _with_loss(*RANKING)(config, path):
        return unused
    options = config.objectives_on()[section.rpartition(".")[2]]
    return None if options.guard else Unused(f"{section}.guard is off")


_ranking = _with_loss(*RANKING)


@dataclasses.dataclass(frozen=True)
class SentenceContrast(Options):
    """The keys of all objectives that contrast sentence vectors."""

    implementation = "xlj.objectives.contrast.loss:objective"
    losses: ClassVar[tuple[str, ...]] = RANKING
    """The possible values of `loss`."""

    batch_size: int = option(
        0, "rows per step, each with several examples; 0: the objective is off", low=0
    )
    loss: str = option(
        "softmax",
        "softmax: -log softmax of the positive among the positive and all negatives of the batch; "
        "hardest: binary cross-entropy of the positive and of the most similar negative; kl and "
        "margin_mse: a teacher's scores of the positive and of the given negatives, by the "
        "Kullback-Leibler divergence or by differences of scores; cosent: the order of the scores "
        "of all pairs of the batch",
        choices=(*RANKING, *SCORED),
    )
    directions: tuple[str, ...] = option(
        ("query_to_passage",),
        f"what is ranked, a list of {', '.join(DIRECTIONS)}. query_to_passage ranks the passages "
        "for each query; passage_to_query ranks the queries for each positive; query_to_query and "
        "passage_to_passage add the other texts of the same side to the negatives. Empty: all "
        "that the loss allows",
        used_when=_ranking,
    )
    layer: int = option(
        -2,
        "layer of the sentence vectors; 0: the embeddings, -1: the layer at two thirds of the "
        "depth, -2: the last layer, whose vectors can be exported",
        low=-2,
    )
    pooling: str = option(
        "mean",
        "how a text's vector is computed. mean: the mean over all tokens; text: without <s> and "
        "</s>; first: the vector of <s>",
        choices=POOLINGS,
    )
    dense: int = option(
        0, "outputs of a linear layer without bias after the pooling; 0: no such layer", low=0
    )
    dimensions: tuple[str, ...] = option(
        (),
        "further losses on the first dimensions of the vectors (Matryoshka), a list of "
        "NUMBER or NUMBER=WEIGHT, such as 64=0.5,128",
    )
    temperature: float = option(
        0.05, "number by which cosines are divided to get logits", low=0.001
    )
    margin: float = option(
        0.0, "number that is subtracted from the cosine of the positive", low=0, used_when=_ranking
    )
    guard: bool = option(
        False,
        "do not use a text as a negative if it is more similar to the query than the positive "
        "minus guard_margin: it is probably another positive",
        used_when=_ranking,
    )
    guard_margin: float = option(
        0.0, "see guard; a difference of cosines", low=-2, high=2, used_when=_with_guard
    )

    @property
    def active_directions(self) -> tuple[str, ...]:
        """The directions, or all that the loss allows if none is named."""
        allowed = DIRECTIONS if self.loss == "softmax" else DIRECTIONS[:2]
        return self.directions or allowed

    @property
    def reported(self) -> tuple[str, ...]:
        """The names in `REASONS` of which the run reports the share of dropped texts."""
        return REASONS if self.guard and self.loss in RANKING else ()

    def sizes(self, full: int) -> dict[int, float]:
        """Returns the weight of the loss of each number of dimensions.

        Args:
          full: the number of dimensions of the vectors, which has the weight 1.
        """
        sizes = {full: 1.0}
        for entry in self.dimensions:
            number, _, weight = entry.partition("=")
            sizes[int(number)] = float(weight) if weight else 1.0
        return sizes

    def check(self, path: str, config: Sections) -> None:
        """Refuses directions and dimensions that do not exist, and losses that the rows lack."""
        if self.loss not in self.losses:
            raise ConfigError(
                f"{path}.loss={self.loss} needs scores, which rows of {self.rows} do not have; use "
                f"{' or '.join(self.losses)}"
            )
        for name in self.directions:
            if name not in DIRECTIONS:
                raise ConfigError(f"{path}.directions={name}: use {', '.join(DIRECTIONS)}")
        between = [name for name in self.active_directions if name in DIRECTIONS[:2]]
        if self.loss == "hardest" and len(between) < len(self.active_directions):
            raise ConfigError(
                f"{path}.directions={','.join(self.directions)}: with {path}.loss=hardest, use "
                f"{' and '.join(DIRECTIONS[:2])}"
            )
        for inner, outer in zip(DIRECTIONS[2:], DIRECTIONS[:2], strict=True):
            if inner in self.directions and outer not in self.directions:
                raise ConfigError(
                    f"{path}.directions={','.join(self.directions)}: {inner} adds negatives to "
                    f"{outer}; add {outer}"
                )
        full = self.dense or config.model.hidden
        for entry in self.dimensions:
            number, sign, weight = entry.partition("=")
            is_size = number.isdecimal() and 0 < int(number) < full
            if not is_size or (sign and not _is_positive(weight)):
                raise ConfigError(
                    f"{path}.dimensions={entry}: use NUMBER or NUMBER=WEIGHT with a number below "
                    f"{full}, the dimensions of the vectors, and a weight above 0"
                )
        if len(self.sizes(full)) <= len(self.dimensions):
            raise ConfigError(
                f"{path}.dimensions={','.join(self.dimensions)}: a number is named twice"
            )


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


@dataclasses.dataclass(frozen=True)
class Retrieval(SentenceContrast):
    """Retrieval: distinguishes the translation of a sentence from other sentences of the batch. The
    first sentences are the queries, the second the passages. The defaults are those of ERNIE-M."""

    rows = "bitext"

    loss: str = option(
        "hardest",
        "softmax: -log softmax of the translation among the translation and all other sentences of "
        "the batch (NT-Xent); hardest: binary cross-entropy of the translation and of the most "
        "similar sentence of the translation's side",
        choices=RANKING,
    )
    layer: int = option(
        -1,
        "layer of the sentence vectors; 0: the embeddings, -1: the layer at two thirds of the "
        "depth, -2: the last layer",
        low=-2,
    )
    directions: tuple[str, ...] = option(
        (),
        "which sentences are ranked for which, as in objectives.contrast; empty: all that the loss "
        "allows",
        used_when=_ranking,
    )
    pooling: str = option(
        "text", "how a text's vector is computed, as in objectives.contrast", choices=POOLINGS
    )


@dataclasses.dataclass(frozen=True)
class Contrast(SentenceContrast):
    """Contrast: ranks the positive of a query above given negatives and other texts of the batch,
    or compares cosines with scores. Trains sentence encoders on `data.examples`."""

    losses = (*RANKING, *SCORED)

    teacher_temperature: float = option(
        1.0,
        "number by which the teacher's scores are divided",
        low=0.001,
        used_when=_with_loss("kl"),
    )
    negatives: int = option(
        0,
        "maximum number of given negatives of an example; further negatives are dropped and "
        "counted",
        low=0,
        high=64,
    )
    query_length: int = option(
        64,
        "tokens of the queries in a row. Longer queries are truncated and counted. "
        "data.passage_length is the same for positives and negatives",
        low=8,
    )
    one_source: bool = option(
        False,
        "all rows of a batch are of one language of one source, so that texts of other languages "
        "and sources are no negatives",
    )
    query_prompt: str = option("", "text that begins each query, such as 'query: '")
    passage_prompt: str = option("", "text that begins each positive and negative")

    @property
    def rows(self) -> str:  # type: ignore[override]
        """The kind of rows, with the lengths, prompts and number of negatives."""
        arguments: dict[str, int | bool | str] = {
            "negatives": self.negatives,
            "query_length": self.query_length,
            "scored": self.loss in SCORED,
            "query_prompt": self.query_prompt,
            "passage_prompt": self.passage_prompt,
        }
        return row_kinds.with_arguments("examples", arguments)

    @classmethod
    def shrink(
        cls, values: MutableMapping[str, Value], rows: int, layer: Callable[[int], int]
    ) -> None:
        """Changes the values for the variant `tiny`, with short queries and small vectors."""
        super().shrink(values, rows, layer)
        values["query_length"] = 32
        if values.get("dimensions"):
            values["dimensions"] = "16,32"

    @property
    def draws_together(self) -> int:
        """How many consecutive rows of a batch have the same source: 1, or all."""
        return self.batch_size if self.one_source else 1

    @property
    def reported(self) -> tuple[str, ...]:
        """The names in `REASONS` of which the run reports the share of dropped texts."""
        return REASONS[: 1 + self.guard] if self.loss in RANKING else ()

    def check(self, path: str, config: Sections) -> None:
        """Refuses losses of given negatives without negatives, and queries that are too long."""
        super().check(path, config)
        if self.loss in LISTED and not self.negatives:
            raise ConfigError(
                f"{path}.loss={self.loss} compares given negatives, but {path}.negatives=0; set it"
            )
        ranks_given = DIRECTIONS[0] in self.active_directions
        if self.loss in RANKING and self.negatives and not ranks_given:
            raise ConfigError(
                f"{path}.directions={','.join(self.directions)} ranks no given negatives; add "
                f"{DIRECTIONS[0]}, or set {path}.negatives=0"
            )
        if self.loss == "cosent" and self.negatives:
            raise ConfigError(
                f"{path}.loss=cosent reads pairs; set {path}.negatives=0 instead of "
                f"{self.negatives}"
            )
        if self.one_source and (self.batch_size & (self.batch_size - 1) or self.batch_size > 65536):
            raise ConfigError(
                f"{path}.batch_size={self.batch_size}: with {path}.one_source, use a power of two "
                "up to 65536"
            )
        if self.one_source and config.train.batch_warmup:
            raise ConfigError(
                f"train.batch_warmup={config.train.batch_warmup} changes the size of batches; set "
                f"it to 0, or turn off {path}.one_source"
            )
        if self.query_length > config.model.positions - 2:
            raise ConfigError(
                f"{path}.query_length={self.query_length} is beyond model.positions="
                f"{config.model.positions}, which allows {config.model.positions - 2} tokens"
            )


def trained_vectors(record: Mapping[str, Any], layers: int) -> Mapping[str, Any] | None:
    """Returns the options of the objective that trained vectors of a model's last layer.

    Vectors of other layers, and the mean without `<s>` and `</s>`, have no module in
    sentence-transformers.

    Args:
      record: the config of a run, as nested dicts.
      layers: number of layers of the model.

    Returns:
      The options of the first objective in `TRAINS_VECTORS` that trained such vectors; None without
      such an objective.
    """
    for name in TRAINS_VECTORS:
        options = record.get("objectives", {}).get(name, {})
        is_last = options.get("layer") in (-2, layers)
        if options.get("batch_size") and is_last and options.get("pooling") in ("mean", "first"):
            return dict(options)
    return None
