"""Extractive question answering: finding the answer to a question in a text.

A row contains the question and a window, which is a part of the context (`data.labelled.windows`).
The label of a row is two numbers: the positions of the answer's first and last token. Both are 0,
the position of `<s>`, if the window does not contain the whole answer.

Answers are decoded from the logits of the answers' first and last tokens.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.config.task import Task
from xlj.data.labelled import kind, squad, windows
from xlj.data.labelled.examples import Question
from xlj.data.labelled.features import Features
from xlj.data.labelled.kind import HuggingFace, TaskKind
from xlj.data.labelled.windows import Windows
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.metrics import answer_scores, normalise_mlqa, normalise_squad
from xlj.io.json_file import Record
from xlj.io.storage import AnyPath
from xlj.tasks.classification import PAIRS

_USAGE = """\
question, context = "Where does Ada live?", "Ada lives in London."
batch = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
characters = batch.pop("offset_mapping")[0].tolist()
with torch.no_grad():
    outputs = model(**batch)
inside = torch.tensor([side == 1 for side in batch.sequence_ids()])
spans = (inside[:, None] & inside).triu().tril(29)  # at most 30 tokens
sums = outputs.start_logits[0][:, None] + outputs.end_logits[0]
first, last = divmod(sums.masked_fill(~spans, -torch.inf).argmax().item(), len(inside))
answer = context[characters[first][0] : characters[last][1]].strip()
print(answer)"""


@dataclasses.dataclass(frozen=True)
class QuestionFeatures(Features):
    """Questions as rows, with the windows from which answers are decoded."""

    windows: Windows


class QuestionAnswering(TaskKind):
    """Finds the span of a context that answers a question."""

    name = "question_answering"
    token_axes = {"tokens": (1,)}
    metrics = ("squad", "mlqa")
    reads = ("stride", "question_length", "answer_length", "no_answer", "misplaced")
    example = Question
    has_labels = False
    hugging_face = HuggingFace(
        "ForQuestionAnswering", "question-answering", remark=PAIRS, usage=_USAGE
    )
    ending = "json"

    def check(self, task: Task) -> None:
        """Raises a `ConfigError` if `task.stride` is below twice `task.answer_length`."""
        if task.stride < 2 * task.answer_length:
            raise ConfigError(
                f"task.stride={task.stride} must be at least twice task.answer_length="
                f"{task.answer_length}; consecutive windows share task.stride tokens, and an "
                "answer of more than half of these tokens could be missed"
            )

    def read(self, path: AnyPath, language: str, task: Task) -> Sequence[Question]:
        """Reads questions from JSON with SQuAD's layout, or from records."""
        return squad.read(path, task.misplaced)

    def distinct(self, examples: list[Any]) -> list[Any]:
        """Makes the identities of questions unique, with `squad.make_ids_unique`."""
        return squad.make_ids_unique(examples)

    def rows(
        self,
        examples: Sequence[Question],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> QuestionFeatures:
        """Converts each question to one or more windows."""
        windowed = windows.make(
            examples,
            vocabulary,
            length=task.length,
            stride=task.stride,
            question_length=task.question_length,
        )
        truncated = {"questions": windowed.cut_questions, "answers": windowed.lost_answers}
        return QuestionFeatures(
            windowed.rows.astype(np.int32), {"labels": windowed.answers}, truncated, windowed
        )

    def head(self) -> Any:
        """Returns BERT's head: two logits per token, for the start and the end of the answer.

        The loss of an answer is the mean of the losses of start and end.
        """
        import jax.numpy as jnp

        from xlj.data.tokenizer.layout import PAD
        from xlj.objectives.supervised import head as heads

        def logits(head: Any, model: Any, hidden: Any, tokens: Any, rngs: Any) -> Any:
            outputs = heads.classify_tokens(head, model, hidden, 0.0)
            # The first column of a row without text has a logit, so that its loss is finite.
            may_be_chosen = (tokens != PAD) | (jnp.arange(tokens.shape[1]) == 0)
            return jnp.where(may_be_chosen[..., None], outputs, -jnp.inf)

        return heads.TaskHead(
            init=lambda rng, model, labels: heads.init_token_classification(rng, model, 2),
            logits=logits,
            # Start and end are each a classification over the positions.
            losses=heads.cross_entropy(lambda logits: logits.swapaxes(1, 2), first=0),
            predict=lambda logits: logits,
            # A row without text has no answer.
            weights=lambda rows: jnp.broadcast_to(
                (rows["tokens"][:, :1] != PAD).astype(jnp.float32), rows["labels"].shape
            ),
            by_token=True,
        )

    def decode(
        self,
        outputs: np.ndarray,
        rows: QuestionFeatures,
        examples: Sequence[Question],
        labels: Sequence[str],
        task: Task,
    ) -> dict[str, str]:
        """Returns the answer of each question by its id, from the logits of all windows."""
        return texts(
            examples,
            rows.windows,
            outputs[..., 0],
            outputs[..., 1],
            answer_length=task.answer_length,
            no_answer=0.0 if task.no_answer else None,
        )

    def is_labelled(self, examples: Sequence[Question]) -> bool:
        """Returns whether any question has a gold answer."""
        return any(example.answers for example in examples)

    def scores(
        self,
        predicted: Mapping[str, str],
        examples: Sequence[Question],
        metric: str,
        language: str,
    ) -> dict[str, float]:
        """Computes F1 and exact match, with the rules of SQuAD or MLQA.

        For a question without a gold answer, both are 1 if the prediction is empty after
        normalisation, else 0 (SQuAD 2.0).
        """
        normalise = (
            partial(normalise_mlqa, language=language) if metric == "mlqa" else normalise_squad
        )
        gold = [(e.identity, [text for text, _ in e.answers]) for e in examples if e.answers]
        score = answer_scores(predicted, gold, normalise)
        unanswered = sum(not normalise(predicted[e.identity]) for e in examples if not e.answers)
        shares = {"f1": score.f1, "exact_match": score.exact_match}
        return {name: (len(gold) * s + unanswered) / len(examples) for name, s in shares.items()}

    def to_text(self, predicted: Mapping[str, str]) -> str:
        """Returns a JSON object that maps the identities of questions to answers, as text."""
        return json.dumps(predicted, indent=1, ensure_ascii=False) + "\n"

    def remark(self, examples: Sequence[Question]) -> str:
        """Returns a text with the number of questions without a gold answer; empty for none."""
        unanswered = sum(not example.answers for example in examples)
        return (
            f"{unanswered:,} without an answer, which task.no_answer allows" if unanswered else ""
        )

    def from_fields(self, fields: Sequence[str], place: str) -> Question:
        """Makes an example from the fields of a line: a question and a context."""
        if len(fields) != 2:
            raise ConfigError(f"{place}: {len(fields)} columns; expected `question TAB context`")
        return Question(place, fields[0], fields[1], None, place)

    def from_record(self, record: Mapping[str, Any], place: str) -> Question:
        """Makes an example from the keys `question` and `context`; does not read the key `id`.

        `xlj.predict` copies the `id` of a JSON object to its output.
        """
        question, context = (kind.text_of(record, [key], place) for key in ("question", "context"))
        return Question(place, question, context, None, place)

    def describe(
        self,
        logits: np.ndarray,
        rows: QuestionFeatures,
        examples: Sequence[Question],
        labels: Sequence[str],
        task: Task,
    ) -> list[Record]:
        """Returns for each question `answer`, `start`, `end` and `score`.

        The answer has the context's characters from `start` (inclusive) to `end` (exclusive); both
        are None for an empty answer. The score is the sum of the answer's start logit and end
        logit. With `task.no_answer`, the sum of the logits of `<s>` is subtracted.
        """
        answers_by_id = self.decode(logits, rows, examples, labels, task)
        best = best_span(rows.windows, logits[..., 0], logits[..., 1], task.answer_length)
        scores = best.scores - best.nulls if task.no_answer else best.scores
        spans = rows.windows.spans
        descriptions: list[Record] = []
        for example, (first, last), score in zip(
            examples, best.tokens.tolist(), scores.tolist(), strict=True
        ):
            answer = answers_by_id[example.identity]
            place = [int(spans[first, 0]), int(spans[last, 1])] if answer else [None, None]
            shown = score if np.isfinite(score) else None
            descriptions.append(
                {"answer": answer, "start": place[0], "end": place[1], "score": shown}
            )
        return descriptions

    def to_fields(self, description: Record) -> list[str]:
        """Returns the fields of an output line: the answer, in which a space replaces each run of
        whitespace, and the score."""
        score = description["score"]
        shown = "" if score is None else f"{score:.6f}"
        return [" ".join(description["answer"].split()), shown]


class Best(NamedTuple):
    """The best span of each question, over all windows of the question.

    Attributes:
      tokens: the first and the last token of the span, as indices in `Windows.spans`, int64
        [questions, 2]; (-1, -1) if the context has no token.
      scores: the sum of the span's start logit and end logit, float64 [questions]; -inf without a
        span.
      nulls: the sum of the two logits of `<s>`, float64 [questions]. It is the smallest sum over
        all windows.
    """

    tokens: np.ndarray
    scores: np.ndarray
    nulls: np.ndarray


def best_span(windows: Windows, starts: np.ndarray, ends: np.ndarray, answer_length: int) -> Best:
    """Finds spans with the highest sum of two logits (Devlin et al., 2019, section 4.2 and 4.3).

    A span begins at a token that the window owns (`Windows.owned`), and ends in the window's
    context. It has at most `answer_length` tokens. Its first and its last token each represent at
    least one character. Among spans with equal sums, the function returns the one that begins
    first, and among these the shortest.

    Args:
      windows: the windows.
      starts, ends: logits of first and last tokens, float [windows, length].
      answer_length: maximum number of tokens of a span.

    Raises:
      ValueError: if the shapes do not match the windows, or a logit of a context or of `<s>` is not
        finite.
    """
    if not starts.shape == ends.shape == windows.rows.shape:
        raise ValueError(
            f"logits {starts.shape} and {ends.shape} do not match windows {windows.rows.shape}"
        )
    position = np.arange(starts.shape[1])
    inside, owned = (
        (part[:, :1] <= position) & (position < part[:, 1:])
        for part in (windows.contexts, windows.owned)
    )
    for logits in (starts, ends):
        if not (np.isfinite(logits[inside]).all() and np.isfinite(logits[:, 0]).all()):
            raise ValueError("logits of a context or of <s> are not finite")
    token = (windows.tokens - windows.contexts[:, 0])[:, None] + position
    has_characters = np.zeros_like(inside)
    has_characters[inside] = (windows.spans[:, 0] < windows.spans[:, 1])[token[inside]]

    # In float64, sums of two float32 numbers are (almost) exact, so equal sums remain equal.
    last = np.where(has_characters, ends, -np.inf)
    best_ends = _maximum_ahead(last, answer_length)
    sums = np.where(has_characters & owned, starts, -np.inf).astype(np.float64) + best_ends
    first = sums.argmax(1)
    highest = np.take_along_axis(sums, first[:, None], 1)[:, 0]

    count = int(windows.questions.max(initial=-1)) + 1
    scores, nulls = np.full(count, -np.inf), np.full(count, np.inf)
    np.maximum.at(scores, windows.questions, highest)
    np.minimum.at(nulls, windows.questions, starts[:, 0].astype(np.float64) + ends[:, 0])
    # Of the windows with the best score, choose the first: its tokens come first in the context.
    is_best = np.flatnonzero(highest == scores[windows.questions])
    chosen = is_best[np.flatnonzero(np.diff(windows.questions[is_best], prepend=-1))]
    first = first[chosen]
    end_positions = np.minimum(first[:, None] + np.arange(answer_length), starts.shape[1] - 1)
    additional = last[chosen[:, None], end_positions].argmax(1)
    tokens = token[chosen, first][:, None] + np.stack([np.zeros_like(additional), additional], 1)
    return Best(np.where(np.isfinite(scores)[:, None], tokens, -1), scores, nulls)


def texts(
    questions: Sequence[Question],
    windows: Windows,
    starts: np.ndarray,
    ends: np.ndarray,
    *,
    answer_length: int,
    no_answer: float | None = None,
) -> dict[str, str]:
    """Returns the answer to each question, as a substring of the context, by the question's
    identity.

    Args:
      questions: the questions of the windows.
      windows, starts, ends, answer_length: the arguments of `best_span`.
      no_answer: a threshold, which SQuAD 2.0 tunes on dev. The answer is empty if the score of
        `<s>` (`Best.nulls`) exceeds the score of the best span by more than this threshold. With
        None, the answer is only empty if the context has no token.

    Raises:
      ValueError: if the shapes, windows and questions do not match, a logit is not finite, or two
        questions have the same identity.
    """
    spans = best_span(windows, starts, ends, answer_length)
    if len(questions) != len(spans.scores):
        raise ValueError(
            f"there are {len(questions)} questions, but the windows belong to "
            f"{len(spans.scores)} questions"
        )
    if len({question.identity for question in questions}) < len(questions):
        raise ValueError("two questions have the same identity; make identities unique")
    has_answer = spans.tokens[:, 0] >= 0
    if no_answer is not None:
        has_answer &= spans.nulls <= spans.scores + no_answer
    answers = {}
    for question, has, (first, last) in zip(questions, has_answer, spans.tokens, strict=True):
        text = question.context[windows.spans[first, 0] : windows.spans[last, 1]] if has else ""
        answers[question.identity] = text
    return answers


def _maximum_ahead(values: np.ndarray, width: int) -> np.ndarray:
    """Computes `values[:, i : i + width].max(1)` for every i.

    Each pass doubles the width.
    """
    seen, reached = 1, values.copy()
    while seen < width:
        step = min(seen, width - seen)
        reached[:, :-step] = np.maximum(reached[:, :-step], reached[:, step:])
        seen += step
    return reached
