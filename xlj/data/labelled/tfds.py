"""Reads labelled examples of TensorFlow Datasets; a child process imports TensorFlow."""

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
"""The language names at the start of TyDiQA-GoldP's ids."""

Row = Mapping[str, Any]
"""An example, by feature name: NumPy arrays and scalars, bytes, or nested mappings."""


class ClassNames(Protocol):
    """A feature of TFDS with classes."""

    names: Sequence[str]


class TagNames(ClassNames, Protocol):
    """A feature of TFDS with classes, or a sequence whose elements have the feature `feature`."""

    feature: ClassNames


Labels = Mapping[str, TagNames]
"""The features of a dataset by name, as far as they are used here."""


class Name(NamedTuple):
    """The parts of `tfds:NAME[/CONFIG]#SPLIT`; `dataset` is NAME[/CONFIG]."""

    dataset: str
    split: str

    @property
    def base(self) -> str:
        """Its name without the config."""
        return self.dataset.partition("/")[0]

    @property
    def example(self) -> type[Example]:
        """The type of its examples."""
        return _DATASETS[self.base][0]

    @property
    def has_all_languages(self) -> bool:
        """Whether one split has all languages, which the examples or their ids identify."""
        splits = {"xnli": (self.split,), "tydi_qa": ("train", "validation")}
        return self.split in splits.get(self.base, ())


def parse(source: str) -> Name:
    """Parses the name of a source.

    Raises:
      ConfigError: if it has another form, or the dataset is not supported.
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
      misplaced: as in `squad.read`.

    Raises:
      ConfigError: if TFDS cannot load it, the language is missing, or an example does not fit.
    """
    parse(source)
    return in_child(f"reading {source}", load, source, language, misplaced)


def load(source: str, language: str, misplaced: str = "error") -> list[Example]:
    """Does the same as `read` in this process, which imports TensorFlow."""
    name = parse(source)
    example_of = _DATASETS[name.base][1]
    ids_have_languages = name.base == "tydi_qa" and name.has_all_languages
    if ids_have_languages and language not in TYDI_QA:
        raise ConfigError(f"{source}: TyDiQA has no {language}; it has {', '.join(TYDI_QA)}")
    tfds = import_quietly("tensorflow_datasets", source)
    try:
        dataset, info = tfds.load(
            name.dataset, split=name.split, shuffle_files=False, with_info=True
        )
    except Exception as error:  # TFDS raises many kinds
        raise ConfigError(f"{source}: TFDS cannot load it ({error})") from error
    examples, policy = list[Example](), squad.MisplacedAnswerPolicy(misplaced)
    for number, row in enumerate(tfds.as_numpy(dataset), 1):
        example = example_of(row, info.features, language, f"{source}, example {number}")
        corrected = policy.apply(example) if isinstance(example, Question) else example
        examples += [corrected] if corrected else []
    policy.report(source)
    if ids_have_languages:
        begin = f"{TYDI_QA[language]}-"
        examples = [e for e in examples if isinstance(e, Question) and e.identity.startswith(begin)]
    questions = [example for example in examples if isinstance(example, Question)]
    return [*squad.make_ids_unique(questions)] if questions else examples


def _xnli(row: Row, features: Labels, language: str, place: str) -> Sentences:
    """Converts an example of XNLI, which contains the pair in all languages."""
    premise = row["premise"].get(language)
    languages = [name.decode() for name in row["hypothesis"]["language"]]
    if premise is None or language not in languages:
        raise ConfigError(f"{place}: no {language}; the example has {', '.join(languages)}")
    hypothesis = row["hypothesis"]["translation"][languages.index(language)]
    return _pair(premise, hypothesis, features, row, place)


def _paws_x(row: Row, features: Labels, language: str, place: str) -> Sentences:
    return _pair(row["sentence1"], row["sentence2"], features, row, place)


def _question(row: Row, features: Labels, language: str, place: str) -> Question:
    texts, starts = row["answers"]["text"], row["answers"]["answer_start"]
    answers = tuple((text.decode(), int(at)) for text, at in zip(texts, starts, strict=True))
    identity, question, context = (row[key].decode() for key in ("id", "question", "context"))
    return Question(identity, question, context, answers, place)


def _wikiann(row: Row, features: Labels, language: str, place: str) -> Words:
    return _words(row["tokens"], row["tags"], features["tags"].feature, place)


def _universal_dependencies(row: Row, features: Labels, language: str, place: str) -> Words:
    """Skips multiword tokens, whose tag is `_`, and reads only their words, as in CoNLL-U files."""
    names = features["upos"].feature
    words = [index for index, tag in enumerate(row["upos"]) if _name(names, tag) != "_"]
    tokens, tags = row["tokens"], row["upos"]
    return _words([tokens[i] for i in words], [tags[i] for i in words], names, place)


def _pair(first: bytes, second: bytes, features: Labels, row: Row, place: str) -> Sentences:
    return Sentences(
        (first.decode(), second.decode()), _name(features["label"], row["label"]), place
    )


def _words(tokens: Sequence[bytes], tags: Sequence[int], feature: ClassNames, place: str) -> Words:
    words = tuple(map(bytes.decode, tokens))
    names = [_name(feature, tag) for tag in tags]
    if not words or not all(words) or len(words) != len(names):
        raise ConfigError(f"{place}: words and tags do not match: {words} and {names}")
    return Words(words, None if None in names else tuple(name or "" for name in names), place)


def _name(feature: ClassNames, index: int) -> str | None:
    """Returns the name of a class; TFDS writes -1 for no class."""
    return feature.names[index] if index >= 0 else None


_DATASETS: dict[str, tuple[type[Example], Callable[[Row, Labels, str, str], Example]]] = {
    "mlqa": (Question, _question),
    "paws_x_wiki": (Sentences, _paws_x),
    "tydi_qa": (Question, _question),
    "universal_dependencies": (Words, _universal_dependencies),
    "wikiann": (Words, _wikiann),
    "xnli": (Sentences, _xnli),
    "xquad": (Question, _question),
}
