"""Tagging of words.

The label of a row is one number for each token. One piece of each word has the number 1 + the index
of the word's tag: the first piece or, if that is only a word-start marker, the second piece
(`task.tagged_piece` has another rule). All other tokens have 0.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xlj.config import ConfigError
from xlj.config.task import Task
from xlj.data.labelled import conll, features, kind, records
from xlj.data.labelled.conll import CHUNK_TAG
from xlj.data.labelled.examples import Words, find_language_prefix
from xlj.data.labelled.features import WordFeatures
from xlj.data.labelled.kind import HuggingFace, TaskKind
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation.metrics import accuracy, chunk_scores
from xlj.io.json_file import Record
from xlj.io.quoting import shortened
from xlj.io.storage import AnyPath

_NO_MARK = ' and piece not in ("\\u2581", "\\u0120")'
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
    """Tags each word of a sentence, for example with entities or parts of speech."""

    name = "tagging"
    token_axes = {"tokens": (1,), "labels": (1,)}
    metrics = ("chunk_f1", "word_class_f1", "tag_accuracy")
    reads = ("columns", "comments", "labels", "names", "tagged_piece")
    example = Words
    hugging_face = HuggingFace(
        "ForTokenClassification",
        "token-classification",
        remark="The tag of a word is the prediction for its first piece; if this piece is only the "
        "word-start marker, for its next piece.",
        usage=_USAGE,
        always=True,
    )

    def hugging_face_for(self, task: Task) -> HuggingFace | None:
        """Describes the class; the rule for the piece of a word is `task.tagged_piece`."""
        if task.tagged_piece != "first" or self.hugging_face is None:
            return self.hugging_face
        return self.hugging_face._replace(
            remark="The tag of a word is the prediction for its first piece.",
            usage=_USAGE.replace(_NO_MARK, ""),
        )

    def read(self, path: AnyPath, language: str, task: Task) -> Sequence[Words]:
        """Reads sentences from a file with columns (CoNLL) or from records."""
        chunk_tags = task.scored_by == "chunk_f1"
        if records.has_records(path):
            return records.read_words(path, language, task.columns, task.names, chunk_tags)
        return conll.read(path, language, task.columns, task.comments, chunk_tags)

    def check_examples(self, examples: Sequence[Words], labels: Sequence[str], task: Task) -> None:
        """Raises a `ConfigError` if `task.metric` is `chunk_f1` and a tag is not a chunk tag.

        Chunk tags are O and tags such as B-PER. The message names the first word with another tag.
        """
        if task.scored_by != "chunk_f1":
            return
        other = {tag for tag in labels if not re.fullmatch(CHUNK_TAG, tag)}
        for example in examples:
            for index, tag in enumerate(example.tags or ()):
                if tag in other:
                    raise ConfigError(
                        f"{example.place_of(index)}: {shortened(repr(tag))} is not a chunk tag, "
                        "but task.metric=chunk_f1 needs O and tags such as B-PER; if the tags are "
                        "in another column, set task.columns; if the tags are not chunks, set "
                        "task.metric to word_class_f1 or tag_accuracy"
                    )

    def rows(
        self,
        examples: Sequence[Words],
        vocabulary: Vocabulary,
        labels: Sequence[str],
        task: Task,
    ) -> WordFeatures:
        """Converts each sentence to a row, or to several rows if it is long."""
        numbers = {label: number for number, label in enumerate(labels)}
        return features.of_words(
            examples, vocabulary, numbers, task.length, task.tagged_piece == "first"
        )

    def head(self) -> Any:
        """Returns BERT's head: dropout, and a linear layer for each token's vector."""
        from xlj.objectives.supervised import head as heads

        return heads.TaskHead(
            init=heads.init_token_classification,
            logits=lambda head, model, hidden, _, rngs: heads.classify_tokens(
                head, model, hidden, model.dropout, rngs
            ),
            losses=heads.cross_entropy(lambda logits: logits),
            by_token=True,
        )

    def decode(
        self,
        outputs: np.ndarray,
        rows: WordFeatures,
        examples: Sequence[Words],
        labels: Sequence[str],
        task: Task,
    ) -> list[list[str]]:
        """Returns the tags of each sentence's words.

        The tag of a word is the prediction for one of its pieces (`WordFeatures.positions`).
        """
        flat = iter(outputs[rows.positions[:, 0], rows.positions[:, 1]].tolist())
        return [
            [labels[number] for number in itertools.islice(flat, len(e.words))] for e in examples
        ]

    def majority(self, training: Sequence[Words]) -> Callable[[Sequence[Words]], list[list[str]]]:
        """Returns a baseline that predicts each word's most frequent tag in the training data.

        Words that are not in the training data get the most frequent tag of all words.
        """
        counts: dict[str, Counter[str]] = {}
        total: Counter[str] = Counter()
        for example in training:
            for word, tag in zip(example.words, example.tags or (), strict=True):
                counts.setdefault(word, Counter())[tag] += 1
                total[tag] += 1
        tag_of_word = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
        other = total.most_common(1)[0][0]
        return lambda examples: [
            [tag_of_word.get(word, other) for word in e.words] for e in examples
        ]

    def scores(
        self,
        predicted: Sequence[Sequence[str]],
        examples: Sequence[Words],
        metric: str,
        language: str,
    ) -> dict[str, float]:
        """Computes scores (0 to 1) by metric; the task's metric is the first one."""
        gold = [example.tags or () for example in examples]
        flat = [list(itertools.chain.from_iterable(tags)) for tags in (predicted, gold)]
        right = {"tag_accuracy": accuracy(*flat)}
        if metric == "tag_accuracy":
            return right
        chunks = chunk_scores(predicted, gold, raw=metric == "word_class_f1")
        return {metric: chunks.f1, "precision": chunks.precision, "recall": chunks.recall} | right

    def to_text(self, predicted: Sequence[Sequence[str]]) -> str:
        """Returns the tags as text, one per line, with a blank line after each sentence."""
        return "".join("".join(f"{tag}\n" for tag in tags) + "\n" for tags in predicted)

    def from_fields(self, fields: Sequence[str], place: str) -> Words:
        """Makes an example from the field of a line: a sentence, with spaces between its words.

        Other whitespace of Unicode, such as a no-break space, belongs to a word.
        """
        if len(fields) > 1:
            raise ConfigError(
                f"{place}: the line has a tab, but expected one sentence per line; for a file with "
                "one word per line, set --input_format=conll"
            )
        return _make_example([word for word in fields[0].split(" ") if word], place)

    def from_record(self, record: Mapping[str, Any], place: str) -> Words:
        """Makes an example from a list `tokens` or `words`, or from a text with spaces between its
        words, under a key of `records.FIRST_TEXT_KEYS`."""
        words = next((record[k] for k in records.WORDS if isinstance(record.get(k), list)), None)
        if words is None:
            return self.from_fields([kind.text_of(record, records.FIRST_TEXT_KEYS, place)], place)
        return _make_example(words, place)

    def describe(
        self,
        logits: np.ndarray,
        rows: WordFeatures,
        examples: Sequence[Words],
        labels: Sequence[str],
        task: Task,
    ) -> list[Record]:
        """Returns for each sentence `words`, `tags`, and the `probabilities` of the tags."""
        best = self.decode(logits.argmax(-1), rows, examples, labels, task)
        of_words = logits[rows.positions[:, 0], rows.positions[:, 1]]
        probabilities = iter(kind.probabilities(of_words).max(-1).tolist())
        return [
            {
                "words": list(example.words),
                "tags": tags,
                "probabilities": list(itertools.islice(probabilities, len(tags))),
            }
            for example, tags in zip(examples, best, strict=True)
        ]

    def to_fields(self, description: Record) -> list[str]:
        """Returns the field of an output line: the tags, separated by spaces."""
        return [" ".join(description["tags"])]


def _make_example(words: Sequence[Any], place: str) -> Words:
    """Makes an example from words, without the prefix that `find_language_prefix` finds."""
    if not words:
        raise ConfigError(f"{place}: the sentence has no words; expected at least one")
    checked = [records.check_word(word, f"{place}: the list of words") for word in words]
    prefix = find_language_prefix("", checked)
    return Words(tuple(word.removeprefix(prefix) for word in checked), None, place)
