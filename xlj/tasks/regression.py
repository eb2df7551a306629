"""Regression: scoring a sentence, or two sentences that are encoded together.

For example semantic textual similarity (STS; Cer et al., 2017). Rows: 1, then the four bytes of the
score as a little-endian float32, first byte last; zeros without a score. Numbers of rows have at
least 16 bits, so a score keeps all its bits.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xlj.config import ConfigError
from xlj.config.finetuning import Task
from xlj.data.labelled import features, kind, tables
from xlj.data.labelled.examples import Example
from xlj.data.labelled.features import Features
from xlj.data.labelled.kind import HuggingFace, TaskKind
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.metrics.correlations import pearson, spearman
from xlj.io.json_file import Record
from xlj.io.quoting import quoted
from xlj.io.storage import AnyPath
from xlj.tasks.classification import PAIRS


@dataclasses.dataclass(frozen=True)
class Rated(Example):
    """One or two sentences; the score, None if the source has none; and the place."""

    what = "score"

    texts: tuple[str, ...]
    score: float | None
    place: str

    @property
    def labels(self) -> tuple[str, ...] | None:
        """None without a score, else empty: scores are not labels."""
        return None if self.score is None else ()

    @property
    def parts(self) -> int:
        """Number of sentences: one or two."""
        return len(self.texts)


class Regression(TaskKind):
    """Scores a sentence, or two sentences encoded together; the loss is the squared error."""

    name = "regression"
    metrics = ("spearman", "pearson")
    reads = ("columns",)
    example = Rated
    has_labels = False
    hugging_face = HuggingFace(
        "ForSequenceClassification",
        "text-classification",
        like="classification_head",
        problem_type="regression",
        remark=PAIRS,
        usage="""\
batch = tokenizer("A cat sleeps.", "A dog sleeps.", return_tensors="pt")
with torch.no_grad():
    print(model(**batch).logits[0, 0].item())""",
    )

    def read(self, path: AnyPath, language: str, task: Task) -> Sequence[Rated]:
        """Reads the examples of a table or of records, whose labels are numbers."""
        return [
            Rated(example.texts, _number(example.label, example.place), example.place)
            for example in tables.read(path, task.columns)
        ]

    def rows(
        self,
        examples: Sequence[Rated],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> Features:
        """Converts one example per row."""
        tokens, cut = features.of_texts([e.texts for e in examples], vocabulary, task.length)
        scores = np.array([e.score or 0.0 for e in examples], "<f4")
        numbers = np.zeros((len(examples), 5), np.int32)
        numbers[:, 1:] = scores.view(np.uint8).reshape(-1, 4)
        numbers[:, 0] = [e.score is not None for e in examples]
        return Features(tokens, numbers, {"examples": cut})

    def head(self) -> Any:
        """Returns RoBERTa's classification head with one output.

        A prediction counts as right if it is within half a point.
        """
        import jax
        import jax.numpy as jnp

        from xlj.models import heads
        from xlj.objectives.task_heads import TaskHead

        def losses(scores: Any, labels: Any) -> tuple[Any, Any]:
            parts = labels[:, 1:].astype(jnp.uint32) << (8 * jnp.arange(4, dtype=jnp.uint32))
            bits = parts.sum(1, dtype=jnp.uint32)
            error = scores - jax.lax.bitcast_convert_type(bits, jnp.float32)[:, None]
            return error**2, jnp.abs(error) <= 0.5

        return TaskHead(
            init=lambda rng, model, labels: heads.init_classification(rng, model, 1),
            logits=lambda head, model, hidden, _, rngs: heads.classify(
                head, model, hidden[:, 0], rngs
            ),
            losses=losses,
            predict=lambda scores: scores[:, 0],
            weights=lambda labels: labels[:, :1].astype(jnp.float32),
        )

    def decode(
        self,
        outputs: np.ndarray,
        rows: Features,
        examples: Sequence[Rated],
        labels: Sequence[str],
        task: Task,
    ) -> list[float]:
        """Returns the score of each example."""
        return [float(score) for score in outputs]

    def majority(self, training: Sequence[Rated]) -> Callable[[Sequence[Rated]], list[float]]:
        """Predicts the mean score of the training data."""
        mean = statistics.fmean(e.score for e in training if e.score is not None)
        return lambda examples: [mean] * len(examples)

    def scores(
        self, predicted: Sequence[float], examples: Sequence[Rated], metric: str, language: str
    ) -> dict[str, float]:
        """Computes both correlations, the task's metric first."""
        right = [e.score for e in examples if e.score is not None]
        both = {"spearman": spearman(predicted, right), "pearson": pearson(predicted, right)}
        return {metric: both[metric], **both}

    def to_text(self, predicted: Sequence[float]) -> str:
        """Formats one score per line."""
        return "".join(f"{score:.6f}\n" for score in predicted)

    def from_fields(self, fields: Sequence[str], place: str) -> Rated:
        """Reads one text, or two with a tab between."""
        return Rated(kind.check_one_or_two(fields, place), None, place)

    def from_record(self, record: Mapping[str, Any], place: str) -> Rated:
        """Reads `text` and optionally `text_pair`, or other usual names of both."""
        return Rated(kind.texts_of(record, place), None, place)

    def describe(
        self,
        logits: np.ndarray,
        rows: Features,
        examples: Sequence[Rated],
        labels: Sequence[str],
        task: Task,
    ) -> list[Record]:
        """Returns the `score`."""
        scores = self.decode(logits[:, 0], rows, examples, labels, task)
        return [{"score": score} for score in scores]

    def to_fields(self, description: Record) -> list[str]:
        """Returns the score."""
        return [f"{description['score']:.6f}"]


def _number(label: str | None, place: str) -> float | None:
    if label is None:
        return None
    try:
        score = float(label)
    except ValueError:
        score = math.nan
    if not math.isfinite(score) or abs(score) > 1e30:
        raise ConfigError(f"{place}: the score is {quoted(label)}, expected a number")
    return score
