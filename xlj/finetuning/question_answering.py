"""Extractive question answering: rows, predictions, scores, files."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from xlj.config.finetuning import Task
from xlj.data.labelled import windows
from xlj.data.labelled.examples import Question
from xlj.data.labelled.features import Features
from xlj.data.labelled.windows import Windows
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.metrics import answers
from xlj.finetuning import answer_spans

ENDING = "json"
majority = None
"""No answer is that of most questions."""


@dataclasses.dataclass(frozen=True)
class QuestionFeatures(Features):
    """Questions as rows, with what reads answers off them."""

    windows: Windows


def rows(
    examples: Sequence[Question], vocabulary: Vocabulary, labels: Sequence[str], task: Task
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


def decode(
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


def labelled(examples: Sequence[Question]) -> bool:
    """Whether answers are known; that none has one says that they are not."""
    return any(example.answers for example in examples)


def scores(
    predicted: Mapping[str, str], examples: Sequence[Question], metric: str, language: str
) -> dict[str, float]:
    """F1 and exact match, with SQuAD's rules or MLQA's for the language. Of a question without an
    answer, both are 1 where nothing is left of what is answered, else 0 (SQuAD 2.0)."""
    normalise = partial(answers.mlqa, language=language) if metric == "mlqa" else answers.squad
    gold = [(e.identity, [text for text, _ in e.answers]) for e in examples if e.answers]
    found = answers.score(predicted, gold, normalise)
    silent = sum(not normalise(predicted[e.identity]) for e in examples if not e.answers)
    shares = {"f1": found.f1, "exact_match": found.exact_match}
    return {name: (len(gold) * s + silent) / len(examples) for name, s in shares.items()}


def to_text(predicted: Mapping[str, str]) -> str:
    """XTREME's file of predictions: a JSON object of answers by identity."""
    return json.dumps(predicted, indent=1, ensure_ascii=False) + "\n"
