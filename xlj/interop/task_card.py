"""The part of a model card about a fine-tuned task: its labels, data and scores, how to use it."""

from collections.abc import Mapping
from typing import Any

from xlj.config.objectives.supervised import supervised_in
from xlj.interop.architectures import TASKS, auto_class
from xlj.interop.exporting import Exported

PIPELINES = {
    "classification": "text-classification",
    "tagging": "token-classification",
    "question_answering": "question-answering",
}
"""Names that model hubs have for each kind of task."""


def sections(
    exported: Exported, trained: Mapping[str, Any] | None, run: Mapping[str, Any] | None
) -> list[str]:
    """Markdown sections of the task and, where they are known, of its scores.

    Args:
      trained: the description of the checkpoint, unless it was not xlj's.
      run: what the fine-tuning run scored (`training.workdir.finished_run`).
    """
    kind = TASKS[exported.head]
    lines = [f"{kind.replace('_', ' ').capitalize()}."]
    if exported.labels:
        lines.append(f"Labels: {', '.join(f'`{label}`' for label in exported.labels)}.")
    if trained and trained["step"]:
        options = supervised_in(trained["config"])
        rows = [
            f"{name.partition('.')[2]} ({counts['sentences']:,} rows)"
            for name, counts in trained["tasks"].items()
        ]
        lines.append(f"Fine-tuned on {', '.join(rows)} of at most {options['length']} tokens.")
        if kind != "tagging":
            lines.append(
                "The tokenizer frames a pair as in training: one separator between its two texts."
            )
    if kind == "tagging":
        lines.append("A word's tag is that of its first piece that is more than a word's mark.")
    made = ["## Task\n\n" + " ".join(lines)]
    if run:
        made.append(_scores(run))
    return made


def languages(run: Mapping[str, Any]) -> list[str]:
    """The languages that a run was trained on or scored in, in this order."""
    scored = (
        language
        for split in ("dev", "test")
        for by_language in run[split].values()
        for language in by_language
    )
    return list(dict.fromkeys([*run["languages"], *scored]))


def usage(name: str, exported: Exported, remote: str) -> str:
    """Python that uses the model.

    Args:
      remote: a further argument of `from_pretrained`, or nothing.
    """
    kind, loader = TASKS[exported.head], auto_class(exported.head)
    if kind == "classification":
        return (
            "from transformers import pipeline\n\n"
            f'classify = pipeline("{PIPELINES[kind]}", "{name}"{remote})\n'
            'print(classify({"text": "A text.", "text_pair": "The other, if it is a pair."}))'
        )
    load = (
        f"import torch\nfrom transformers import {loader}, AutoTokenizer\n\n"
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")\n'
        f'model = {loader}.from_pretrained("{name}"{remote})\n'
    )
    return load + (_TAGGING if kind == "tagging" else _ANSWERING)


_TAGGING = """\
words = ["Ada", "lives", "here"]
batch = tokenizer(words, is_split_into_words=True, return_tensors="pt")
with torch.no_grad():
    best = model(**batch).logits[0].argmax(-1).tolist()
tags = {}
for number, word, piece in zip(best, batch.word_ids(), batch.tokens()):
    if word is not None and piece not in ("\\u2581", "\\u0120"):
        tags.setdefault(word, model.config.id2label[number])
print([(word, tags.get(place)) for place, word in enumerate(words)])"""

_ANSWERING = """\
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


def _scores(run: Mapping[str, Any]) -> str:
    """A table of percent: a line a language and their mean, a column a split and metric."""
    columns = {
        f"{split} {metric}": by_language
        for split in ("dev", "test")
        for metric, by_language in run[split].items()
    }
    if not columns:
        return "## Scores\n\nNo labels were there to score it."
    rows = ["## Scores (%)", "", f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for language in languages(run):
        cells = [
            f"{found[language]:.1f}" if language in found else "" for found in columns.values()
        ]
        if any(cells):
            rows.append(f"| {language} | {' | '.join(cells)} |")
    means = [f"{sum(found.values()) / len(found):.1f}" for found in columns.values()]
    return "\n".join([*rows, f"| mean | {' | '.join(means)} |"])
