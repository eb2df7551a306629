"""Tagging of words.

Rows: 1 + the tag, a number a token, at the first piece of each word; 0 elsewhere.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xlj.config import ConfigError
from xlj.config.finetuning import Task
from xlj.data.labelled import conll, features, kind, records
from xlj.data.labelled.chunks import CHUNK_TAG
from xlj.data.labelled.examples import Words
from xlj.data.labelled.features import WordFeatures
from xlj.data.labelled.kind import HuggingFace, TaskKind
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.metrics.shares import accuracy
from xlj.evaluation.metrics.tags import chunk_scores
from xlj.io.json_file import Record
from xlj.io.quoting import quoted, shortened
from xlj.io.storage import AnyPath

_USAGE = """\
words = ["Ada", "lives", "here"]
batch = tokenizer(words, is_split_into_words=True, return_tensors="pt")
with torch.no_grad():
    best = model(**batch).logits[0].argmax(-1).tolist()
tags = {}
for number, word, piece in zip(best, batch.word_ids(), batch.tokens()):
    if word is not None and piece not in ("\\u2581", "\\u0120"):
        tags.setdefault(word, model.config.id2label[number])
print([(word, tags.get(place)) for place, word in enumerate(words)])"""


class Tagging(TaskKind):
    """A tag of each word: entities, parts of speech."""

    name = "tagging"
    metrics = ("chunk_f1", "word_class_f1", "tag_accuracy")
    reads = ("columns", "comments", "labels", "names")
    example = Words
    hugging_face = HuggingFace(
        "ForTokenClassification",
        "token-classification",
        remark="A word's tag is that of its first piece that is more than a word's mark.",
        usage=_USAGE,
        always=True,
    )

    def read(self, path: AnyPath, language: str, task: Task) -> Sequence[Words]:
        """The sentences of columns or of records."""
        chunk_tags = task.scored_by == "chunk_f1"
        if records.are_in(path):
            return records.read_words(path, language, task.columns, task.names, chunk_tags)
        return conll.read(path, language, task.columns, task.comments, chunk_tags)

    def check_examples(self, examples: Sequence[Words], labels: Sequence[str], task: Task) -> None:
        """Refuses a tag of no chunk where chunks are scored, and names the first word with one."""
        if task.scored_by != "chunk_f1":
            return
        other = {tag for tag in labels if not re.fullmatch(CHUNK_TAG, tag)}
        for example in examples:
            for index, tag in enumerate(example.tags or ()):
                if tag in other:
                    raise ConfigError(
                        f"{example.place_of(index)}: {shortened(repr(tag))} is no tag of "
                        "task.metric=chunk_f1, which reads O and such as B-PER; if the tags are in "
                        "another column, name it in task.columns, and if they are no entities, set "
                        "task.metric to word_class_f1 or tag_accuracy"
                    )

    def rows(
        self,
        examples: Sequence[Words],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> WordFeatures:
        """The rows of sentences; a long one has several."""
        numbers = {label: number for number, label in enumerate(labels)}
        return features.of_words(examples, vocabulary, numbers, task.length)

    def head(self) -> Any:
        """BERT's head: dropout, and a linear map of each token's vector."""
        from xlj.models import heads
        from xlj.objectives.task_heads import TaskHead, cross_entropy

        return TaskHead(
            init=heads.init_token_classification,
            logits=lambda head, model, hidden, _, rngs: heads.classify_tokens(
                head, model, hidden, model.dropout, rngs
            ),
            losses=cross_entropy(lambda found: found),
            by_token=True,
        )

    def decode(
        self,
        outputs: np.ndarray,
        made: WordFeatures,
        examples: Sequence[Words],
        labels: Sequence[str],
        task: Task,
    ) -> list[list[str]]:
        """The tag of each word, from that of each token: a word's first piece decides."""
        flat = iter(outputs[made.places[:, 0], made.places[:, 1]].tolist())
        return [
            [labels[number] for number in itertools.islice(flat, len(e.words))] for e in examples
        ]

    def majority(self, training: Sequence[Words]) -> Callable[[Sequence[Words]], list[list[str]]]:
        """Predicts the tag that each word has most often in the training data; of other words, the
        most frequent tag of all."""
        counts: dict[str, Counter[str]] = {}
        total: Counter[str] = Counter()
        for example in training:
            for word, tag in zip(example.words, example.tags or (), strict=True):
                counts.setdefault(word, Counter())[tag] += 1
                total[tag] += 1
        usual = {word: found.most_common(1)[0][0] for word, found in counts.items()}
        other = total.most_common(1)[0][0]
        return lambda examples: [[usual.get(word, other) for word in e.words] for e in examples]

    def scores(
        self,
        predicted: Sequence[Sequence[str]],
        examples: Sequence[Words],
        metric: str,
        language: str,
    ) -> dict[str, float]:
        """Shares by metric, the task's own first."""
        gold = [example.tags or () for example in examples]
        flat = [list(itertools.chain.from_iterable(tags)) for tags in (predicted, gold)]
        right = {"tag_accuracy": accuracy(*flat)}
        if metric == "tag_accuracy":
            return right
        found = chunk_scores(predicted, gold, raw=metric == "word_class_f1")
        return {metric: found.f1, "precision": found.precision, "recall": found.recall} | right

    def to_text(self, predicted: Sequence[Sequence[str]]) -> str:
        """A tag a line, a blank line after each sentence."""
        return "".join("".join(f"{tag}\n" for tag in tags) + "\n" for tags in predicted)

    def from_fields(self, fields: Sequence[str], place: str) -> Words:
        """A sentence, whose words are what blanks separate."""
        if len(fields) > 1:
            raise ConfigError(
                f"{place}: this line has a tab, and text has a sentence a line; a file of a word a "
                "line is read with --input_format=conll"
            )
        return _of_words(fields[0].split(), place)

    def from_record(self, record: Mapping[str, Any], place: str) -> Words:
        """`tokens` or `words`, a list; or a `text`, whose words are what blanks separate."""
        words = next((record[k] for k in records.WORDS if isinstance(record.get(k), list)), None)
        if words is None:
            return self.from_fields([kind.text_of(record, kind.FIRST, place)], place)
        return _of_words(words, place)

    def describe(
        self,
        logits: np.ndarray,
        made: WordFeatures,
        examples: Sequence[Words],
        labels: Sequence[str],
        task: Task,
    ) -> list[Record]:
        """`words`, the `tags` of each, and their `probabilities`."""
        best = self.decode(logits.argmax(-1), made, examples, labels, task)
        of_words = logits[made.places[:, 0], made.places[:, 1]]
        chances = iter(kind.probabilities(of_words).max(-1).tolist())
        return [
            {
                "words": list(example.words),
                "tags": tags,
                "probabilities": list(itertools.islice(chances, len(tags))),
            }
            for example, tags in zip(examples, best, strict=True)
        ]

    def to_fields(self, described: Record) -> list[str]:
        """The tags, with spaces between."""
        return [" ".join(described["tags"])]


def _of_words(words: Sequence[Any], place: str) -> Words:
    if not words:
        raise ConfigError(f"{place}: there are no words to tag")
    for word in words:
        if not isinstance(word, str) or not word.strip():
            raise ConfigError(f"{place}: {quoted(word)} is no word")
    return Words(tuple(words), None, place)
