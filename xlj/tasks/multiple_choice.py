"""Multiple choice: choosing the text that fits a premise, or the answer to a question.

Data sets of this kind are XCOPA (Ponti et al., 2020) and COPA. A row contains `<s> premise </s>
choice </s>` for each choice. The encoder encodes the choices separately. The label of a row is one
number: 1 + the index of the right choice, or 0 if it is unknown.
"""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xlj.config import ConfigError
from xlj.config.task import Task
from xlj.data.labelled import kind, records, tables
from xlj.data.labelled.examples import Example
from xlj.data.labelled.features import Features, fit_sizes
from xlj.data.labelled.kind import HuggingFace, TaskKind
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.metrics import accuracy
from xlj.io.json_file import Record
from xlj.io.quoting import quoted, shortened
from xlj.io.storage import AnyPath

MAX_CHOICES = 8
"""The maximum number of choices of an example."""


@dataclasses.dataclass(frozen=True)
class Choices(Example):
    """An example of multiple choice.

    Attributes:
      premise: the premise, followed by the question if there is one.
      choices: the texts to choose from, two or more.
      right: the zero-based index of the right choice; None if unknown.
      place: where the example was read, such as FILE:LINE.
    """

    premise: str
    choices: tuple[str, ...]
    right: int | None
    place: str

    @property
    def labels(self) -> tuple[str, ...] | None:
        """None if the right choice is unknown, else an empty tuple, because choices have no
        labels."""
        return None if self.right is None else ()


class MultipleChoice(TaskKind):
    """Chooses the text that fits a premise best."""

    name = "multiple_choice"
    token_axes = {"tokens": (1,)}
    metrics = ("accuracy",)
    reads = ("columns", "names", "pooling")
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
        """Reads examples from JSON lines, JSON, Parquet, or a table with a header.

        `task.columns` names the premise, the choices and the label. If it is empty, the keys are
        those of XCOPA: `premise`, optionally `question`, either `choice1`, `choice2`, ... or a list
        `choices`, and `label`, the zero-based index of the right choice. Examples without a label,
        or with the label -1, are unlabelled.
        """
        if 0 < len(task.columns) < 3:
            raise ConfigError(
                f"task.columns={','.join(task.columns)}: name the premise, the choices or their "
                "list, and the label"
            )
        rows = records.read(path) if records.has_records(path) else tables.read_named(path)
        return [
            dataclasses.replace(
                _named_example(record, place, task) if task.columns else _example_of(record, place),
                language=records.stated_language(record),
            )
            for record, place in rows
        ]

    def rows(
        self,
        examples: Sequence[Choices],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> Features:
        """Converts each example to a row of `task.length` tokens.

        Each choice, with its premise, gets an equal share of the row. If premise and choice exceed
        this share, the longer of the two is truncated first.

        Raises:
          ConfigError: if `task.length` is too short for the choices of an example.
        """
        texts = [(e.premise, *e.choices) for e in examples]
        encoded = iter(vocabulary.encode_batch(list(itertools.chain.from_iterable(texts))))
        tokens = np.full((len(examples), task.length), PAD, np.int32)
        truncated = 0
        for row, example in enumerate(examples):
            premise = next(encoded)
            max_tokens = task.length // len(example.choices) - 3
            if max_tokens < 2:
                raise ConfigError(
                    f"{example.place}: task.length={task.length} is too short for "
                    f"{len(example.choices)} choices; raise it"
                )
            ids, is_truncated = list[int](), False
            for choice in itertools.islice(encoded, len(example.choices)):
                first, second = fit_sizes([len(premise), len(choice)], max_tokens)
                is_truncated |= first + second < len(premise) + len(choice)
                ids += [BOS, *premise[:first].tolist(), EOS, *choice[:second].tolist(), EOS]
            tokens[row, : len(ids)] = ids
            truncated += is_truncated
        numbers = [0 if e.right is None else 1 + e.right for e in examples]
        fields = {"labels": np.array(numbers, np.int32).reshape(-1, 1)}
        return Features(tokens, fields, {"examples": truncated})

    def head(self) -> Any:
        """Returns the model's head for texts with one output for each choice.

        If an example has fewer than `MAX_CHOICES` choices, the other outputs are minus infinity.
        """
        import jax.numpy as jnp

        from xlj.models import segments
        from xlj.objectives.supervised import head as heads

        def logits(head: Any, model: Any, hidden: Any, tokens: Any, rngs: Any) -> Any:
            outputs = heads.classify_texts(head, model, hidden, tokens, rngs, MAX_CHOICES)[..., 0]
            return jnp.where(segments.is_example(tokens, MAX_CHOICES), outputs, -jnp.inf)

        return heads.TaskHead(
            init=lambda rng, model, labels: heads.init_classification(rng, model, 1),
            logits=logits,
            losses=heads.cross_entropy(lambda logits: logits[:, None]),
        )

    def decode(
        self,
        outputs: np.ndarray,
        rows: Features,
        examples: Sequence[Choices],
        labels: Sequence[str],
        task: Task,
    ) -> list[int]:
        """Returns the index of the predicted choice of each example."""
        return [int(choice) for choice in outputs]

    def majority(self, training: Sequence[Choices]) -> Callable[[Sequence[Choices]], list[int]]:
        """Returns a baseline that predicts the index that is right most often in the training
        data."""
        most_frequent = Counter(e.right for e in training if e.right is not None).most_common(1)[0][
            0
        ]
        return lambda examples: [most_frequent] * len(examples)

    def scores(
        self, predicted: Sequence[int], examples: Sequence[Choices], metric: str, language: str
    ) -> dict[str, float]:
        """Computes the accuracy."""
        return {"accuracy": accuracy(predicted, [example.right for example in examples])}

    def from_fields(self, fields: Sequence[str], place: str) -> Choices:
        """Makes an example from the fields of a line: a premise and the choices."""
        return _check_example(Choices(fields[0], tuple(fields[1:]), None, place))

    def from_record(self, record: Mapping[str, Any], place: str) -> Choices:
        """Makes an example from the keys that `read` documents; ignores `label`."""
        return _example_of({k: v for k, v in record.items() if k != "label"}, place)

    def describe(
        self,
        logits: np.ndarray,
        rows: Features,
        examples: Sequence[Choices],
        labels: Sequence[str],
        task: Task,
    ) -> list[Record]:
        """Returns for each example the index `choice`, and the `probabilities` of all choices."""
        best = self.decode(logits.argmax(-1), rows, examples, labels, task)
        probabilities = kind.probabilities(logits).tolist()
        return [
            {"choice": choice, "probabilities": values[: len(example.choices)]}
            for example, choice, values in zip(examples, best, probabilities, strict=True)
        ]

    def to_fields(self, description: Record) -> list[str]:
        """Returns the fields of an output line: the index of the choice and the probability."""
        choice = description["choice"]
        return [str(choice), f"{description['probabilities'][choice]:.6f}"]


_LABEL_KEYS = ("label", "answer", "answerKey")
"""Usual keys of the index of the right choice."""


def _example_of(record: Mapping[str, Any], place: str) -> Choices:
    """Makes an example from XCOPA's keys."""
    premise = kind.text_of(record, ("premise", "context", "question"), place)
    question = record.get("question")
    if isinstance(question, str) and question != premise:
        premise = f"{premise} {question}"
    choices = record.get("choices")
    if choices is None:
        names = sorted(name for name in record if re.fullmatch(r"choice[1-9]", name))
        choices = [record[name] for name in names]
    if not isinstance(choices, list) or not choices or not all(isinstance(x, str) for x in choices):
        raise ConfigError(
            f"{place}: expected a list `choices` of texts, or the keys choice1, choice2, ... with "
            f"texts; the record has {shortened(', '.join(record))}; in xlj finetune, "
            "task.columns=PREMISE,CHOICE,CHOICE,...,LABEL names other keys"
        )
    label = next((key for key in _LABEL_KEYS if record.get(key) is not None), "label")
    right = _find_right(record.get(label), (), len(choices), f"{place}: {label}")
    return _check_example(Choices(premise, tuple(choices), right, place))


def _named_example(record: Mapping[str, Any], place: str, task: Task) -> Choices:
    """Makes an example from the keys of `task.columns`.

    The choices are texts under several keys, or under one key a list: of texts, or of objects with
    `text` and `label`. Instead of the latter, there may be an object of two lists.
    """
    premise, *names, label = task.columns
    texts = [_lookup(record, name, place) for name in premise.split("+")]
    choices = [_lookup(record, name, place) for name in names]
    labels: Sequence[str] = task.names
    if len(choices) == 1 and not isinstance(choices[0], str):
        (choices,) = choices
        if isinstance(choices, Mapping):
            lists = (choices.get(key) or () for key in ("text", "label"))
            choices = [{"text": t, "label": x} for t, x in zip(*lists, strict=False)]
        labels = labels or [str(x["label"]) for x in choices if isinstance(x, Mapping)]
        choices = [x.get("text") if isinstance(x, Mapping) else x for x in choices]
    for name, text in itertools.zip_longest((*premise.split("+"), *names), (*texts, *choices)):
        if not isinstance(text, str):
            raise ConfigError(f"{place}: {name or names[-1]} has {quoted(text)}, expected a text")
    known = label in record or "." in label
    value = _lookup(record, label, place) if known else None
    right = _find_right(value, labels, len(choices), f"{place}: {label}")
    return _check_example(Choices(" ".join(texts), tuple(choices), right, place))


def _lookup(record: Mapping[str, Any], name: str, place: str) -> Any:
    """Returns the value under `A`; of `A|B`, the first key that exists; `A.B` is B in object A."""
    for option in name.split("|"):
        value: Any = record
        for key in [option] if option in record else option.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            return value
    raise ConfigError(
        f"{place}: no key {quoted(name)}, which task.columns names; the record has "
        f"{shortened(', '.join(record))}"
    )


def _find_right(value: Any, names: Sequence[str], count: int, where: str) -> int | None:
    """Returns the index of the right choice; None if it is unknown.

    Args:
      value: the label in the file: an index, or one of `names`.
      names: the labels of the choices in files, in order; empty if labels are indices.
      count: the number of choices.
      where: the place and the key of the label, for the error.
    """
    if value is None or value == -1 or str(value).strip() in tables.UNLABELLED:
        return None
    is_index = isinstance(value, int) and not isinstance(value, bool) and not names
    right = names.index(str(value)) if str(value) in names else value if is_index else -1
    if 0 <= right < count:
        return int(right)
    expected = f"one of {', '.join(names)}" if names else f"0 to {count - 1}"
    hint = "" if names else "; task.names=1,2,... names other labels of the choices, in order"
    raise ConfigError(
        f"{where} is {quoted(value)}; expected the index of the right choice, {expected}{hint}"
    )


def _check_example(example: Choices) -> Choices:
    if not 2 <= len(example.choices) <= MAX_CHOICES:
        raise ConfigError(
            f"{example.place}: the number of choices is {len(example.choices)}; expected 2 to "
            f"{MAX_CHOICES}"
        )
    if not all(map(str.strip, (example.premise, *example.choices))):
        raise ConfigError(f"{example.place}: the premise or a choice is empty; expected text")
    return example
