"""Multiple choice: choosing the text that fits a premise, or the answer to a question.

For example XCOPA (Ponti et al., 2020) and COPA. A row contains an example of the encoder for each
choice, `<s> premise </s> choice </s>`, which do not attend to each other. Its label is one number,
1 + the choice; 0 without a label.
"""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xlj.config import ConfigError
from xlj.config.finetuning import Task
from xlj.data.labelled import kind, records
from xlj.data.labelled.examples import Example
from xlj.data.labelled.features import Features, fit_sizes
from xlj.data.labelled.kind import HuggingFace, TaskKind
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.metrics.shares import accuracy
from xlj.io.json_file import Record
from xlj.io.quoting import quoted
from xlj.io.storage import AnyPath

MOST = 8
"""The most choices of an example."""


@dataclasses.dataclass(frozen=True)
class Choices(Example):
    """An example of multiple choice.

    Attributes:
      premise: the premise, followed by its question if it has one.
      choices: two or more texts.
      right: the index of the right choice; None if the source has none.
      place: `FILE:LINE` or similar.
    """

    premise: str
    choices: tuple[str, ...]
    right: int | None
    place: str

    @property
    def labels(self) -> tuple[str, ...] | None:
        """None if the right choice is unknown, else empty: choices are not labels."""
        return None if self.right is None else ()


class MultipleChoice(TaskKind):
    """Chooses the text that fits a premise best."""

    name = "multiple_choice"
    metrics = ("accuracy",)
    example = Choices
    has_labels = False
    hugging_face = HuggingFace(
        "ForMultipleChoice",
        "multiple-choice",
        remark="The premise and each choice are a pair, with one separator between them.",
        usage="""\
premise, choices = "The man dropped the glass.", ["It broke.", "It sang."]
batch = tokenizer([premise] * len(choices), choices, padding=True, return_tensors="pt")
with torch.no_grad():
    outputs = model(**{name: values[None] for name, values in batch.items()})
print(choices[outputs.logits[0].argmax()])""",
    )

    def read(self, path: AnyPath, language: str, task: Task) -> Sequence[Choices]:
        """Reads the examples of JSON lines, JSON or Parquet, in XCOPA's format.

        Keys are `premise`, optionally `question`, `choice1`, `choice2` and so on or a list
        `choices`, and `label`, from 0.
        """
        return [_example(record, place) for record, place in records.read(path)]

    def rows(
        self,
        examples: Sequence[Choices],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> Features:
        """Converts one example per row; each choice gets an equal share of the row.

        If premise and choice are too long for it, the longer one is truncated first.
        """
        texts = [(e.premise, *e.choices) for e in examples]
        encoded = iter(vocabulary.encode_batch(list(itertools.chain.from_iterable(texts))))
        tokens = np.full((len(examples), task.length), PAD, np.int32)
        cut = 0
        for row, example in enumerate(examples):
            premise = next(encoded)
            room = task.length // len(example.choices) - 3
            if room < 2:
                raise ConfigError(
                    f"{example.place}: task.length={task.length} is too short for "
                    f"{len(example.choices)} choices"
                )
            ids, is_cut = list[int](), False
            for choice in itertools.islice(encoded, len(example.choices)):
                first, second = fit_sizes([len(premise), len(choice)], room)
                is_cut |= first + second < len(premise) + len(choice)
                ids += [BOS, *premise[:first].tolist(), EOS, *choice[:second].tolist(), EOS]
            tokens[row, : len(ids)] = ids
            cut += is_cut
        numbers = [0 if e.right is None else 1 + e.right for e in examples]
        return Features(tokens, np.array(numbers, np.int32).reshape(-1, 1), {"examples": cut})

    def head(self) -> Any:
        """Returns BERT's head: a dense layer and one output per choice, from the vector of its
        `<s>`; minus infinity for choices that a row does not have."""
        import jax.numpy as jnp

        from xlj.models import heads
        from xlj.objectives import bitext
        from xlj.objectives.task_heads import TaskHead, cross_entropy

        def logits(head: Any, model: Any, hidden: Any, tokens: Any, rngs: Any) -> Any:
            places = bitext.starts(tokens, MOST)
            vectors = jnp.take_along_axis(hidden, places[..., None], 1)
            outputs = heads.classify(head, model, vectors, rngs)[..., 0]
            return jnp.where(bitext.is_example(tokens, MOST), outputs, -jnp.inf)

        return TaskHead(
            init=lambda rng, model, labels: heads.init_classification(rng, model, 1),
            logits=logits,
            losses=cross_entropy(lambda logits: logits[:, None]),
        )

    def decode(
        self,
        outputs: np.ndarray,
        rows: Features,
        examples: Sequence[Choices],
        labels: Sequence[str],
        task: Task,
    ) -> list[int]:
        """Returns the index of each choice."""
        return [int(choice) for choice in outputs]

    def majority(self, training: Sequence[Choices]) -> Callable[[Sequence[Choices]], list[int]]:
        """Predicts the index that is right most often in the training data."""
        usual = Counter(e.right for e in training if e.right is not None).most_common(1)[0][0]
        return lambda examples: [usual] * len(examples)

    def scores(
        self, predicted: Sequence[int], examples: Sequence[Choices], metric: str, language: str
    ) -> dict[str, float]:
        """Computes the accuracy."""
        return {"accuracy": accuracy(predicted, [example.right for example in examples])}

    def from_fields(self, fields: Sequence[str], place: str) -> Choices:
        """Reads a premise and its choices, with tabs between."""
        return _checked(Choices(fields[0], tuple(fields[1:]), None, place))

    def from_record(self, record: Mapping[str, Any], place: str) -> Choices:
        """Reads the same keys as `read`, but no label."""
        return _example({k: v for k, v in record.items() if k != "label"}, place)

    def describe(
        self,
        logits: np.ndarray,
        rows: Features,
        examples: Sequence[Choices],
        labels: Sequence[str],
        task: Task,
    ) -> list[Record]:
        """Returns the index of the `choice`, and the `probabilities` of all choices."""
        best = self.decode(logits.argmax(-1), rows, examples, labels, task)
        probabilities = kind.probabilities(logits).tolist()
        return [
            {"choice": choice, "probabilities": values[: len(example.choices)]}
            for example, choice, values in zip(examples, best, probabilities, strict=True)
        ]

    def to_fields(self, description: Record) -> list[str]:
        """Returns the index of the choice and its probability."""
        choice = description["choice"]
        return [str(choice), f"{description['probabilities'][choice]:.6f}"]


def _example(record: Mapping[str, Any], place: str) -> Choices:
    premise = kind.text_of(record, ("premise", "context", "question"), place)
    question = record.get("question")
    if isinstance(question, str) and question != premise:
        premise = f"{premise} {question}"
    choices = record.get("choices")
    if choices is None:
        names = sorted(name for name in record if re.fullmatch(r"choice[1-9]", name))
        choices = [record[name] for name in names]
    if not isinstance(choices, list) or not all(isinstance(text, str) for text in choices):
        raise ConfigError(f"{place}: choices must be a list of texts, or choice1, choice2, ...")
    right = record.get("label")
    right = None if right == -1 else right
    if right is not None and (not isinstance(right, int) or not 0 <= right < len(choices)):
        raise ConfigError(
            f"{place}: label is {quoted(right)}, expected a number from 0 to {len(choices) - 1}"
        )
    return _checked(Choices(premise, tuple(choices), right, place))


def _checked(example: Choices) -> Choices:
    if not 2 <= len(example.choices) <= MOST:
        raise ConfigError(f"{example.place}: {len(example.choices)} choices, expected 2 to {MOST}")
    if not all(map(str.strip, (example.premise, *example.choices))):
        raise ConfigError(f"{example.place}: the premise or a choice is empty")
    return example
