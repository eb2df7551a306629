"""Reads labelled examples of TensorFlow Datasets (TFDS); a child process imports TensorFlow."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from xlj.config import ConfigError
from xlj.data.labelled import squad
from xlj.data.labelled.examples import Example, Question, Sentences, Words
from xlj.io.processes import in_child
from xlj.io.quiet import import_quietly

TYDI_QA = {
    "ar": "arabic",
    "bn": "bengali",
    "en": "english",
    "fi": "finnish",
    "id": "indonesian",
    "ko": "korean",
    "ru": "russian",
    "sw": "swahili",
    "te": "telugu",
}
"""The language names that begin the ids of questions in TyDiQA-GoldP, by language code."""

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


def parse(source: str) -> Name:
    """Parses a source `tfds:NAME[/CONFIG]#SPLIT`.

    Raises:
      ConfigError: if the source has another form, or the dataset is not supported.
    """
    parts = re.fullmatch(r"tfds:(([^/#]+)(?:/[^#]+)?)#(.+)", source)
    if not parts:
        raise ConfigError(f"{source}: expected tfds:NAME#SPLIT or tfds:NAME/CONFIG#SPLIT")
    if parts[2] not in _DATASETS:
        raise ConfigError(
            f"{source}: the supported labelled datasets of TFDS are {', '.join(_DATASETS)}; write "
            "other datasets to files"
        )
    return Name(parts[1], parts[3])


def read(source: str, language: str, misplaced: str = "error") -> list[Example]:
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
    parse(source)
    return in_child(f"reading {source}", load, source, language, misplaced)


def load(source: str, language: str, misplaced: str = "error") -> list[Example]:
    """Reads the same examples as `read`, but in this process, which then imports TensorFlow."""
    name = parse(source)
    to_example = _DATASETS[name.base][1]
    ids_have_languages = name.base == "tydi_qa" and name.has_all_languages
    if ids_have_languages and language not in TYDI_QA:
        raise ConfigError(f"{source}: TyDiQA has no {language}; it has {', '.join(TYDI_QA)}")
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
        prefix = f"{TYDI_QA[language]}-"
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
