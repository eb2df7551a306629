"""Regression: scoring a sentence, or two sentences that are encoded together.

Semantic textual similarity (STS; Cer et al., 2017) is such a task. A row has the fields `score`,
float32, and `has_score`: 1, or 0 if the score is unknown.
"""

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xlj.config.task import Task
from xlj.data.labelled import features, kind, records, tables
from xlj.data.labelled.examples import Example
from xlj.data.labelled.features import Features
from xlj.data.labelled.kind import HuggingFace, TaskKind
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.metrics import pearson, spearman
from xlj.io.json_file import Record
from xlj.io.storage import AnyPath
from xlj.tasks.classification import PAIRS


@dataclasses.dataclass(frozen=True)
class RatedText(Example):
    """One or two sentences with a score.

    Attributes:
      score: the gold score; None if unknown.
      place: where the example was read, such as FILE:LINE.
    """

    what = "score"

    texts: tuple[str, ...]
    score: float | None
    place: str

    @property
    def labels(self) -> tuple[str, ...] | None:
        """None if the score is unknown, else an empty tuple, because scores are not labels."""
        return None if self.score is None else ()

    @property
    def text_count(self) -> int:
        """The number of sentences, one or two."""
        return len(self.texts)


class Regression(TaskKind):
    """Scores a sentence, or two sentences encoded together.

    The loss is the squared error or, with `task.loss=order`, that of the order of a batch's scores.
    """

    name = "regression"
    token_axes = {"tokens": (1,)}
    metrics = ("spearman", "pearson")
    reads = ("columns", "pooling", "loss")
    example = RatedText
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

    def read(self, path: AnyPath, language: str, task: Task) -> Sequence[RatedText]:
        """Reads examples from a table or from records, with numbers as labels."""
        return [
            RatedText(
                example.texts,
                tables.parse_score(example.label, example.place),
                example.place,
                language=example.language,
            )
            for example in tables.read(path, task.columns, label_keys=records.SCORE_KEYS)
        ]

    def rows(
        self,
        examples: Sequence[RatedText],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> Features:
        """Converts each example to a row."""
        tokens, truncated = features.of_texts([e.texts for e in examples], vocabulary, task.length)
        fields: dict[str, np.ndarray] = {
            "score": np.array([e.score or 0.0 for e in examples], np.float32),
            "has_score": np.array([e.score is not None for e in examples], np.uint8),
        }
        return Features(tokens, fields, {"examples": truncated})

    def head(self) -> Any:
        """Returns the model's head for texts with one output.

        A prediction counts as correct if the error is at most 0.5.
        """
        import jax.numpy as jnp

        from xlj.objectives.supervised import head as heads

        def losses(scores: Any, rows: Any) -> tuple[Any, Any]:
            error = scores - rows["score"][:, None]
            return error**2, jnp.abs(error) <= 0.5

        return heads.TaskHead(
            init=lambda rng, model, labels: heads.init_classification(rng, model, 1),
            logits=lambda *arguments: heads.classify_texts(*arguments)[:, 0],
            losses=losses,
            predict=lambda scores: scores[:, 0],
            weights=lambda rows: rows["has_score"][:, None].astype(jnp.float32),
            gold=lambda rows: jnp.where(rows["has_score"] > 0, rows["score"], jnp.nan),
        )

    def decode(
        self,
        outputs: np.ndarray,
        rows: Features,
        examples: Sequence[RatedText],
        labels: Sequence[str],
        task: Task,
    ) -> list[float]:
        """Returns the predicted score of each example."""
        return [float(score) for score in outputs]

    def majority(
        self, training: Sequence[RatedText]
    ) -> Callable[[Sequence[RatedText]], list[float]]:
        """Returns a baseline that predicts the mean score of the training data."""
        mean = statistics.fmean(e.score for e in training if e.score is not None)
        return lambda examples: [mean] * len(examples)

    def scores(
        self, predicted: Sequence[float], examples: Sequence[RatedText], metric: str, language: str
    ) -> dict[str, float]:
        """Computes both correlations; the task's metric is the first one."""
        gold = [e.score for e in examples if e.score is not None]
        both = {"spearman": spearman(predicted, gold), "pearson": pearson(predicted, gold)}
        return {metric: both[metric], **both}

    def to_text(self, predicted: Sequence[float]) -> str:
        """Returns the scores as text, one per line."""
        return "".join(f"{score:.6f}\n" for score in predicted)

    def from_fields(self, fields: Sequence[str], place: str) -> RatedText:
        """Makes an example from the fields of a line: one text or two texts."""
        return RatedText(kind.check_one_or_two(fields, place), None, place)

    def from_record(self, record: Mapping[str, Any], place: str) -> RatedText:
        """Makes an example from the keys that `kind.texts_of` reads, such as `text`."""
        return RatedText(kind.texts_of(record, place), None, place)

    def describe(
        self,
        logits: np.ndarray,
        rows: Features,
        examples: Sequence[RatedText],
        labels: Sequence[str],
        task: Task,
    ) -> list[Record]:
        """Returns for each example the predicted `score`."""
        scores = self.decode(logits[:, 0], rows, examples, labels, task)
        return [{"score": score} for score in scores]

    def to_fields(self, description: Record) -> list[str]:
        """Returns the field of an output line: the score."""
        return [f"{description['score']:.6f}"]
