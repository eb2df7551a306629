"""Extractive question answering.

Rows: two numbers, the positions of the answer's first and last token; 0, which is that of `<s>`,
where the window holds no answer.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from xlj.config import ConfigError
from xlj.config.finetuning import Task
from xlj.data.labelled import kind, squad, windows
from xlj.data.labelled.examples import Question
from xlj.data.labelled.features import Features
from xlj.data.labelled.kind import HuggingFace, TaskKind
from xlj.data.labelled.windows import Windows
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.metrics import answers
from xlj.io.json_file import Record
from xlj.io.storage import AnyPath
from xlj.tasks import answer_spans
from xlj.tasks.classification import PAIRS

_USAGE = """\
question, context = "Where does Ada live?", "Ada lives in London."
batch = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
characters = batch.pop("offset_mapping")[0].tolist()
with torch.no_grad():
    found = model(**batch)
inside = torch.tensor([side == 1 for side in batch.sequence_ids()])
spans = (inside[:, None] & inside).triu().tril(29)  # at most 30 tokens
sums = found.start_logits[0][:, None] + found.end_logits[0]
first, last = divmod(sums.masked_fill(~spans, -torch.inf).argmax().item(), len(inside))
answer = context[characters[first][0] : characters[last][1]].strip()
print(answer)"""


@dataclasses.dataclass(frozen=True)
class QuestionFeatures(Features):
    """Questions as rows, with what reads answers off them."""

    windows: Windows


class QuestionAnswering(TaskKind):
    """The span of a context that answers a question."""

    name = "question_answering"
    metrics = ("squad", "mlqa")
    reads = ("stride", "question_length", "answer_length", "no_answer", "misplaced")
    example = Question
    has_labels = False
    hugging_face = HuggingFace(
        "ForQuestionAnswering", "question-answering", remark=PAIRS, usage=_USAGE
    )
    ending = "json"

    def check(self, task: Task) -> None:
        """Refuses windows that share too little."""
        if task.stride < 2 * task.answer_length:
            raise ConfigError(
                f"task.stride={task.stride} is less than twice task.answer_length="
                f"{task.answer_length}: some answers that cross two windows would not be found"
            )

    def read(self, path: AnyPath, language: str, task: Task) -> Sequence[Question]:
        """The questions of SQuAD's JSON, or of records."""
        return squad.read(path, task.misplaced)

    def distinct(self, examples: list[Any]) -> list[Any]:
        """Questions with identities of their own, as `squad.unique` makes them."""
        return squad.unique(examples)

    def rows(
        self,
        examples: Sequence[Question],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> QuestionFeatures:
        """The windows of questions."""
        made = windows.make(
            examples,
            vocabulary,
            length=task.length,
            stride=task.stride,
            question_length=task.question_length,
        )
        cut = {"questions": made.cut_questions, "answers": made.lost_answers}
        return QuestionFeatures(made.rows.astype(np.int32), made.answers, cut, made)

    def head(self) -> Any:
        """BERT's head: of each token, "starts here" and "ends here"; the loss of an answer is the
        mean of both."""
        import jax.numpy as jnp

        from xlj.data.tokenizer.layout import PAD
        from xlj.models import heads
        from xlj.objectives.task_heads import TaskHead, cross_entropy

        def logits(head: Any, model: Any, hidden: Any, tokens: Any, rngs: Any) -> Any:
            found = heads.classify_tokens(head, model, hidden, 0.0)
            return jnp.where((tokens != PAD)[..., None], found, -jnp.inf)

        return TaskHead(
            init=lambda rng, model, labels: heads.init_token_classification(rng, model, 2),
            logits=logits,
            # Both are choices among the positions.
            losses=cross_entropy(lambda found: found.swapaxes(1, 2), first=0),
            predict=lambda found: found,
            weights=lambda labels: jnp.ones(labels.shape),
            by_token=True,
        )

    def decode(
        self,
        outputs: np.ndarray,
        made: QuestionFeatures,
        examples: Sequence[Question],
        labels: Sequence[str],
        task: Task,
    ) -> dict[str, str]:
        """Answers by the question's identity, from the logits of each window."""
        return answer_spans.texts(
            examples,
            made.windows,
            outputs[..., 0],
            outputs[..., 1],
            answer_length=task.answer_length,
            no_answer=0.0 if task.no_answer else None,
        )

    def is_labelled(self, examples: Sequence[Question]) -> bool:
        """Whether answers are known; that none has one says that they are not."""
        return any(example.answers for example in examples)

    def scores(
        self,
        predicted: Mapping[str, str],
        examples: Sequence[Question],
        metric: str,
        language: str,
    ) -> dict[str, float]:
        """F1 and exact match, with SQuAD's rules or MLQA's for the language. Of a question without
        an answer, both are 1 where nothing is left of what is answered, else 0 (SQuAD 2.0)."""
        normalise = partial(answers.mlqa, language=language) if metric == "mlqa" else answers.squad
        gold = [(e.identity, [text for text, _ in e.answers]) for e in examples if e.answers]
        found = answers.score(predicted, gold, normalise)
        silent = sum(not normalise(predicted[e.identity]) for e in examples if not e.answers)
        shares = {"f1": found.f1, "exact_match": found.exact_match}
        return {name: (len(gold) * s + silent) / len(examples) for name, s in shares.items()}

    def to_text(self, predicted: Mapping[str, str]) -> str:
        """A JSON object of answers by identity."""
        return json.dumps(predicted, indent=1, ensure_ascii=False) + "\n"

    def remark(self, examples: Sequence[Question]) -> str:
        """How many questions have no answer, where some have."""
        silent = sum(not example.answers for example in examples)
        return f"{silent:,} without an answer (task.no_answer)" if silent else ""

    def from_fields(self, fields: Sequence[str], place: str) -> Question:
        """A question and its context, with a tab between."""
        if len(fields) != 2:
            raise ConfigError(f"{place}: {len(fields)} columns; expected `question TAB context`")
        return Question(place, fields[0], fields[1], None, place)

    def from_record(self, record: Mapping[str, Any], place: str) -> Question:
        """`question` and `context`; an `id` comes out again."""
        question, context = (kind.text_of(record, [key], place) for key in ("question", "context"))
        return Question(place, question, context, None, place)

    def describe(
        self,
        logits: np.ndarray,
        made: QuestionFeatures,
        examples: Sequence[Question],
        labels: Sequence[str],
        task: Task,
    ) -> list[Record]:
        """`answer`, the characters of the context from `start` to before `end`, and its `score`:
        the sum of its two logits, minus that of `<s>` with `task.no_answer`. An empty answer has
        no place."""
        answered = self.decode(logits, made, examples, labels, task)
        best = answer_spans.best(made.windows, logits[..., 0], logits[..., 1], task.answer_length)
        scores = best.scores - best.nulls if task.no_answer else best.scores
        spans = made.windows.spans
        found: list[Record] = []
        for example, (first, last), score in zip(
            examples, best.tokens.tolist(), scores.tolist(), strict=True
        ):
            answer = answered[example.identity]
            place = [int(spans[first, 0]), int(spans[last, 1])] if answer else [None, None]
            shown = score if np.isfinite(score) else None
            found.append({"answer": answer, "start": place[0], "end": place[1], "score": shown})
        return found

    def to_fields(self, described: Record) -> list[str]:
        """The answer, with its white space as single spaces, and its score."""
        score = described["score"]
        shown = "" if score is None else f"{score:.6f}"
        return [" ".join(described["answer"].split()), shown]
