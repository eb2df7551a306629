"""The sources of a task: finds them by the templates of a config, reads their examples, and
determines the labels of the task.

For examples of TensorFlow Datasets (TFDS), a child process imports TensorFlow.
"""

import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from xlj.config import ConfigError
from xlj.config.fields import suggestion
from xlj.config.languages import language_of, matching
from xlj.config.task import KINDS, Task
from xlj.data.labelled import kind, records, squad
from xlj.data.labelled.examples import Example, LinkedPair, Question, Sentences, Words
from xlj.data.text.templates import match
from xlj.io import storage
from xlj.io.processes import in_child
from xlj.io.quiet import import_quietly, require
from xlj.io.quoting import quoted
from xlj.io.storage import to_path
from xlj.phrasebook import LANGUAGES, labelled
from xlj.phrasebook.labelled.examples import LabelledTexts, LinkedWords, TaggedWords

PHRASEBOOK: dict[str, type[Example]] = {
    "nli": Sentences,
    "paraphrases": Sentences,
    "tags": Words,
    "entities": Words,
    "questions": Question,
    "links": LinkedPair,
}
"""The labelled tasks of the phrasebook, and the type of the examples of each."""
SPLITS = ("train", "dev", "test")
"""The splits of these tasks."""


def resolve(task: Task, split: str, languages: Sequence[str]) -> dict[str, list[str]]:
    """Returns the existing sources of each language, in the order of the templates.

    A template need not match every language. Datasets of TFDS are assumed to exist.

    Args:
      task: the task; `task.train`, `task.dev` and `task.test` contain templates of sources.
      split: `train`, `dev` or `test`. If the task has no templates for the split, no language has
        sources.
      languages: codes of the languages.

    Raises:
      ConfigError: if a template or a language has no source, or TFDS is needed but not installed;
        the message lists all problems of the templates (`templates.match`).
    """
    sources, problems = match(
        getattr(task, split),
        f"task.{split}",
        {language: {"language": language} for language in languages},
        "languages",
        lambda source, language: [source] if _exists(source, language, task) else [],
        lambda template: _has_all_languages(template, task),
    )
    if problems:
        raise ConfigError("\n".join(problems))
    for source in itertools.chain(*sources.values()):
        if source.startswith("tfds:"):
            require("tensorflow_datasets", source)
    return sources


def read(source: str, language: str, task: Task) -> list[Example]:
    """Reads all examples of a source that `resolve` returned, in order.

    Returns:
      One or more examples of the type of the task.

    Raises:
      ConfigError: if the source cannot be read, contains no examples, or does not suit the task;
        the message names the file and the line. Also if a file without `{language}` in its template
        has examples of several languages, but not of this one.
    """
    examples = list(_read(source, language, task))
    if source in (*task.train, *task.dev, *task.test):
        examples = _of_language(examples, language, source)
    if not examples:
        raise ConfigError(f"{source} contains no examples; check the file or the split")
    if task.labels:
        check_labels(examples, task.labels)
    return examples


def _read(source: str, language: str, task: Task) -> Sequence[Example]:
    if source.startswith("tfds:"):
        return read_tfds(source, language, task.misplaced)
    if source.startswith("phrasebook:"):
        name, split = _parse_phrasebook(source, task)
        return list(_read_phrasebook(name, language, split))
    return kind.find(task.effective_kind).read(to_path(source), language, task)


def _has_all_languages(template: str, task: Task) -> bool:
    """Whether a source without `{language}` has examples of several languages, with their names."""
    if template.startswith("tfds:"):
        return parse_tfds(template).has_all_languages
    if template.startswith("phrasebook:") or not _exists(template, "", task):
        return False
    return len({example.language for example in _read(template, "", task)} - {""}) > 1


def _of_language(examples: list[Example], language: str, source: str) -> list[Example]:
    """Returns the examples of a language, if the source names several languages; else all.

    If the source does not have the code itself, another code of the language matches: `de` matches
    `de-DE` and `deu_Latn`.
    """
    found = {example.language for example in examples} - {""}
    if len(found) < 2:
        return examples
    matches = matching(language, found)
    if len(matches) != 1:
        raise ConfigError(
            f"{source}: the file has examples of {', '.join(sorted(found))}, but "
            f"{'several of them are' if matches else 'none is'} {language}; use one of these codes "
            "in task.languages, task.dev_languages and task.test_languages"
        )
    chosen = [example for example in examples if example.language == matches[0]]
    print(
        f"{source}: {len(chosen):,} of {len(examples):,} examples are in {language}",
        file=sys.stderr,
    )
    return chosen


def _exists(source: str, language: str, task: Task) -> bool:
    """Whether a source has a language, as far as this is known without reading the source."""
    if source.startswith("tfds:"):
        _check_type(source, parse_tfds(source).example, task)
        return True
    if source.startswith("phrasebook:"):
        name, _ = _parse_phrasebook(source, task)
        languages = language.split("-")
        return set(languages) <= set(LANGUAGES) and len(languages) == 1 + (name == "links")
    parts = source.split("|")  # pairs and their links may be in several files
    return all(storage.find_files(part) == [to_path(part)] for part in parts)


def _parse_phrasebook(source: str, task: Task) -> tuple[str, str]:
    """Returns TASK and SPLIT of a source `phrasebook:TASK/LANGUAGE#SPLIT`."""
    match = re.fullmatch(r"phrasebook:([^/#]+)/[^/#]+#(.+)", source)
    if not match or match[1] not in PHRASEBOOK or match[2] not in SPLITS:
        raise ConfigError(
            f"{source}: expected phrasebook:TASK/{{language}}#SPLIT; TASK is one of "
            f"{', '.join(PHRASEBOOK)}, and SPLIT is one of {', '.join(SPLITS)}"
        )
    _check_type(source, PHRASEBOOK[match[1]], task)
    return match[1], match[2]


def _read_phrasebook(name: str, language: str, split: str) -> Iterator[Example]:
    for number, example in enumerate(labelled.examples(name, language, split), 1):
        place = f"phrasebook:{name}/{language}#{split}:{number}"
        if isinstance(example, LabelledTexts):
            yield Sentences(example.texts, example.label, place)
        elif isinstance(example, TaggedWords):
            yield Words(example.words, example.tags, place)
        elif isinstance(example, LinkedWords):
            yield LinkedPair(*example.words, example.links, (), place)
        else:  # parallel questions have the same identity in all languages, as in XQuAD
            identity = f"{split}-{number}"
            yield Question(identity, example.question, example.context, example.answers, place)


def _check_type(source: str, example: type[Example], task: Task) -> None:
    """Raises a `ConfigError` if the examples of a source have another type than the task needs."""
    if kind.find(task.kind).example is not example:
        kinds = [name for name in KINDS if kind.find(name).example is example]
        raise ConfigError(
            f"{source} has examples of task.kind={' or '.join(kinds)}, not {task.kind}; set "
            "task.kind, or name another source"
        )


def label_set(training: Iterable[Example], named: Sequence[str]) -> tuple[str, ...]:
    """Returns the labels or tags of a task, in the order of their indices.

    The result is empty if the task has no labels, as for question answering.

    Args:
      training: the training examples.
      named: the labels that the config names. If empty, the labels of the training examples are
        used, sorted.

    Raises:
      ConfigError: if a training example has no label or a label that is not in `named`, or if there
        is only one label.
    """
    training = list(training)
    require_labels(training)
    if named:
        check_labels(training, named)
    labels = named or sorted({label for example in training for label in example.labels or ()})
    if len(labels) == 1:
        raise ConfigError(
            f"{training[0].where}: {quoted(labels[0])} is the only label of the task, so there is "
            "nothing to learn; check task.columns"
        )
    return tuple(labels)


def require_labels(examples: Iterable[Example]) -> None:
    """Checks that all examples are labelled; of a question, the answers must be known.

    Raises:
      ConfigError: on the first unlabelled example; the message names its place.
    """
    for example in examples:
        if example.labels is None:
            hint = example.hint or "check task.columns"
            raise ConfigError(f"{example.where}: this example has no {example.what}; {hint}")


def check_all_or_none(examples: Iterable[Example]) -> None:
    """Checks that either all examples are labelled or no example is.

    Raises:
      ConfigError: if only some examples are labelled; the message names the place of the first
        unlabelled example.
    """
    first_examples: dict[bool, Example] = {}
    for example in examples:
        first_examples.setdefault(example.labels is None, example)
    if len(first_examples) == 2:
        unlabelled, labelled = first_examples[True], first_examples[False]
        hint = unlabelled.hint or "label all examples of a language, or none"
        hint += "; task.malformed=skip skips examples that have none"
        raise ConfigError(
            f"{unlabelled.where}: this example has no {unlabelled.what}, but the example at "
            f"{labelled.where} has; {hint}"
        )


def check_labels(examples: Iterable[Example], labels: Sequence[str]) -> None:
    """Checks that all labels and tags of examples are in `labels`; accepts unlabelled examples.

    Raises:
      ConfigError: on the first label that is not in `labels`; the message names its place.
    """
    known = set(labels)
    for example in examples:
        example_labels = example.labels or ()
        if known.issuperset(example_labels):
            continue
        index, label = next(item for item in enumerate(example_labels) if item[1] not in known)
        part = example.part_of(index)
        of_part = f" of {quoted(part)}" if part else ""
        raise ConfigError(
            f"{example.place_of(index)}: {quoted(label)}{of_part} is not a label of the task, "
            f"which has {', '.join(labels)} (task.labels, or the labels of the training data)"
            f"{suggestion(label, labels)}"
        )


Row = Mapping[str, Any]
"""An example of TFDS: NumPy arrays and scalars, bytes, or nested mappings, by feature name."""


class ClassNames(Protocol):
    """A feature of TFDS whose values are numbers of classes; `names` has the name of each class."""

    names: Sequence[str]


class TagNames(ClassNames, Protocol):
    """A feature of TFDS: classes, or a sequence whose elements are described by `feature`."""

    feature: ClassNames


Labels = Mapping[str, TagNames]
"""The features of a dataset by name, with the attributes that this module uses."""


class Name(NamedTuple):
    """The parts of a source `tfds:NAME[/CONFIG]#SPLIT`.

    Attributes:
      dataset: NAME, or NAME/CONFIG.
      split: SPLIT.
    """

    dataset: str
    split: str

    @property
    def base(self) -> str:
        """The name of the dataset without the config."""
        return self.dataset.partition("/")[0]

    @property
    def example(self) -> type[Example]:
        """The type of the examples of the dataset."""
        return _DATASETS[self.base][0]

    @property
    def has_all_languages(self) -> bool:
        """Whether the split has the examples of all languages.

        In XNLI, each example contains all languages. In TyDiQA, ids of questions begin with the
        name of the language.
        """
        splits = {"xnli": (self.split,), "tydi_qa": ("train", "validation")}
        return self.split in splits.get(self.base, ())


def parse_tfds(source: str) -> Name:
    """Parses a source `tfds:NAME[/CONFIG]#SPLIT`.

    Raises:
      ConfigError: if the source has another form, or the dataset is not supported.
    """
    match = re.fullmatch(r"tfds:(([^/#]+)(?:/[^#]+)?)#(.+)", source)
    if not match:
        raise ConfigError(f"{source}: expected tfds:NAME#SPLIT or tfds:NAME/CONFIG#SPLIT")
    if match[2] not in _DATASETS:
        raise ConfigError(
            f"{source}: the supported labelled datasets of TFDS are {', '.join(_DATASETS)}; write "
            "other datasets to files"
        )
    return Name(match[1], match[3])


def read_tfds(source: str, language: str, misplaced: str = "error") -> list[Example]:
    """Reads the examples of a source in one language, in order, in a spawned process.

    Args:
      source: `tfds:NAME[/CONFIG]#SPLIT`.
      language: code of the language.
      misplaced: `error`, `find` or `skip`: what to do with an answer that is not at its
        `answer_start` (`squad.read` describes the policies).

    Raises:
      ConfigError: if TFDS cannot load the dataset, the dataset does not have the language, or an
        example is invalid.
    """
    parse_tfds(source)
    return in_child(f"reading {source}", load_tfds, source, language, misplaced)


def load_tfds(source: str, language: str, misplaced: str = "error") -> list[Example]:
    """Reads the examples of `read_tfds`, but in this process, which then imports TensorFlow."""
    name = parse_tfds(source)
    to_example = _DATASETS[name.base][1]
    ids_have_languages = name.base == "tydi_qa" and name.has_all_languages
    if ids_have_languages and language_of(language) not in records.TYDI_QA:
        known = ", ".join(records.TYDI_QA)
        raise ConfigError(f"{source}: TyDiQA has no {language}; it has {known}")
    tfds = import_quietly("tensorflow_datasets", source)
    try:
        dataset, info = tfds.load(
            name.dataset, split=name.split, shuffle_files=False, with_info=True
        )
    except Exception as error:  # TFDS raises many types of errors
        raise ConfigError(f"{source}: TFDS cannot load it ({error})") from error
    examples, policy = list[Example](), squad.MisplacedAnswerPolicy(misplaced)
    for number, row in enumerate(tfds.as_numpy(dataset), 1):
        example = to_example(row, info.features, language, f"{source}, example {number}")
        corrected = policy.apply(example) if isinstance(example, Question) else example
        examples += [corrected] if corrected else []
    policy.report(source)
    if ids_have_languages:
        prefix = f"{records.TYDI_QA[language_of(language)]}-"
        examples = [
            e for e in examples if isinstance(e, Question) and e.identity.startswith(prefix)
        ]
    questions = [example for example in examples if isinstance(example, Question)]
    return [*squad.make_ids_unique(questions)] if questions else examples


def _from_xnli(row: Row, features: Labels, language: str, place: str) -> Sentences:
    """Converts an example of XNLI, which contains a premise and a hypothesis in all languages."""
    premise = row["premise"].get(language)
    languages = [name.decode() for name in row["hypothesis"]["language"]]
    if premise is None or language not in languages:
        raise ConfigError(
            f"{place}: no language {language}; the example has {', '.join(languages)}"
        )
    hypothesis = row["hypothesis"]["translation"][languages.index(language)]
    return _to_pair(premise, hypothesis, features, row, place)


def _from_paws_x(row: Row, features: Labels, language: str, place: str) -> Sentences:
    return _to_pair(row["sentence1"], row["sentence2"], features, row, place)


def _to_question(row: Row, features: Labels, language: str, place: str) -> Question:
    texts, starts = row["answers"]["text"], row["answers"]["answer_start"]
    answers = zip(texts, starts, strict=True)
    identity, question, context = (row[key].decode() for key in ("id", "question", "context"))
    decoded = tuple((text.decode(), int(start)) for text, start in answers)
    return Question(identity, question, context, decoded, place)


def _from_wikiann(row: Row, features: Labels, language: str, place: str) -> Words:
    return _to_words(row["tokens"], row["tags"], features["tags"].feature, place)


def _from_universal_dependencies(row: Row, features: Labels, language: str, place: str) -> Words:
    """Converts a sentence; drops multiword tokens (tag `_`), whose words follow as tokens."""
    names = features["upos"].feature
    indices = [index for index, tag in enumerate(row["upos"]) if _class_name(names, tag) != "_"]
    tokens, tags = row["tokens"], row["upos"]
    return _to_words([tokens[i] for i in indices], [tags[i] for i in indices], names, place)


def _to_pair(first: bytes, second: bytes, features: Labels, row: Row, place: str) -> Sentences:
    return Sentences(
        (first.decode(), second.decode()), _class_name(features["label"], row["label"]), place
    )


def _to_words(
    tokens: Sequence[bytes], tags: Sequence[int], feature: ClassNames, place: str
) -> Words:
    words = tuple(map(bytes.decode, tokens))
    names = [_class_name(feature, tag) for tag in tags]
    if not words or not all(words) or len(words) != len(names):
        raise ConfigError(
            f"{place}: each word needs a tag and no word may be empty, but the words are {words} "
            f"and the tags are {names}"
        )
    return Words(words, None if None in names else tuple(name or "" for name in names), place)


def _class_name(feature: ClassNames, index: int) -> str | None:
    """Returns the name of a class; None for -1, which TFDS writes if the class is unknown."""
    return feature.names[index] if index >= 0 else None


_DATASETS: dict[str, tuple[type[Example], Callable[[Row, Labels, str, str], Example]]] = {
    "mlqa": (Question, _to_question),
    "paws_x_wiki": (Sentences, _from_paws_x),
    "tydi_qa": (Question, _to_question),
    "universal_dependencies": (Words, _from_universal_dependencies),
    "wikiann": (Words, _from_wikiann),
    "xnli": (Sentences, _from_xnli),
    "xquad": (Question, _to_question),
}
