"""Reads records of labelled examples from JSON lines, JSON and Parquet."""

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xlj.config import ConfigError
from xlj.data.labelled.examples import Words, find_language_prefix
from xlj.io import files, formats, json_file
from xlj.io.quoting import examples, quoted, shortened
from xlj.io.storage import AnyPath

FIRST_TEXT_KEYS = (
    *("text", "sentence", "premise", "sentence1", "sentence_A", "question1", "utt", "tweet"),
    *("review", "review_body", "question"),
)
SECOND_TEXT_KEYS = ("text_pair", "hypothesis", "hypo", "sentence2", "sentence_B", "question2")
"""Usual names of the columns or keys of the first and the second text of an example."""
LABEL_KEYS = (
    *("label", "labels", "gold_label", "entailment_label", "category", "class", "intent"),
    *("sentiment", "topic", "is_duplicate", "stars"),
)
SCORE_KEYS = ("score", "similarity_score", "similarity", "relatedness_score", "label")
"""Usual names of the label of a classification, and of the score of a regression."""
LANGUAGE_KEYS = ("language", "lang", "locale", "language_code", "lang_code", "dialect")
"""Usual names of the language of an example."""
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
_OTHER_NAMES = ("id", "idx", "index", "index_id", "guid", "context", "answer")
WORDS = ("tokens", "words")
"""Usual keys of the list of words of a record."""
_TAGS = ("ner_tags", "tags", "pos_tags", "upos", "labels")
"""Usual keys of the list of tags of a record."""


def has_records(path: AnyPath) -> bool:
    """Whether the name or the first bytes of a file show that it is JSON, JSON lines or Parquet."""
    file_format = formats.detect(path)
    if file_format is None or file_format.is_text:
        file_format = formats.detect(path, files.head(path))
    return file_format is not None and file_format.name in ("JSON", "Parquet")


def values(path: AnyPath) -> Iterator[tuple[Any, str]]:
    """Yields the values of a file, usually objects, each with its place, such as `FILE:LINE`.

    Raises:
      ConfigError: if the file cannot be read.
    """
    file_format = formats.detect(path)
    if not file_format or file_format.name != "Parquet":
        yield from json_file.values(path)
        return
    try:
        parquet = importlib.import_module("pyarrow.parquet")
        with path.open("rb") as file:
            rows = parquet.read_table(file).to_pylist()
    except Exception as error:  # pyarrow raises many types, including Python's own
        raise ConfigError(f"{path}: cannot be read as Parquet ({shortened(str(error))})") from None
    for number, row in enumerate(rows, 1):
        yield row, f"{path}: row {number}"


def read(path: AnyPath) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yields the objects of a file, each with its place, such as `FILE:LINE`.

    Raises:
      ConfigError: if the file cannot be read, or a value is not an object.
    """
    for value, place in values(path):
        if not isinstance(value, dict):
            raise ConfigError(f"{place}: not a JSON object, which is written in braces")
        yield value, place


def class_name(number: int, names: Sequence[str], place: str) -> str | None:
    """Returns the name of a class that a file gives as a number; None for -1 (no class).

    Args:
      number: the zero-based number of the class, or -1.
      names: names of the classes. If empty, the result is the number as a text.
      place: the place of the number, for the error.

    Raises:
      ConfigError: if the number is not -1 or the index of a name.
    """
    if not names:
        return str(number)
    if not -1 <= number < len(names):
        raise ConfigError(
            f"{place}: no class {number}: task.names has {len(names)} names, whose numbers are 0 "
            f"to {len(names) - 1}; add the missing names"
        )
    return names[number] if number >= 0 else None


def stated_language(record: Mapping[str, Any], columns: Sequence[str] = ()) -> str:
    """Returns the code of the language that a record gives under one of `LANGUAGE_KEYS`.

    A dialect counts only as a code with a script, such as `arz_Arab`. If the record gives no
    language, but its `id` begins with a name of `TYDI_QA` and a hyphen, this is the language. The
    result is empty if the record gives no language.

    Args:
      columns: keys of the texts and the label, which may be a language; they are not read here.
    """
    names = [
        record[key]
        for key in LANGUAGE_KEYS
        if isinstance(record.get(key), str) and key not in columns
        if key != "dialect" or re.fullmatch(r"[a-z]{3}[-_][A-Za-z]{4}", record[key])
    ]
    name, hyphen, _ = str(record.get("id", "")).partition("-")
    codes = {name: code for code, name in TYDI_QA.items()}
    found = next(iter(names), name if hyphen and name in codes else "")
    return codes.get(found.casefold(), found)


def choose_columns(
    names: Sequence[str], label_keys: Sequence[str], place: str, kind: str
) -> list[str]:
    """Returns the columns of a file whose names are usual for one or two texts and their label.

    Args:
      names: the names of all columns or keys.
      label_keys: usual names of the label; another example is `FIRST_TEXT_KEYS` for the first text.
      place: the place of the names, for the error.
      kind: `column` or `key`, for the error.

    Raises:
      ConfigError: if there is not exactly one column for the first text and one for the label.
    """
    parts = [{key.casefold() for key in k} for k in (FIRST_TEXT_KEYS, SECOND_TEXT_KEYS, label_keys)]
    first, second, label = ([name for name in names if name.casefold() in x] for x in parts)
    if len(first) == len(label) == 1 and len(second) < 2:
        return [*first, *second, *label]
    if kind == "key":
        problem = (
            "set task.columns to the keys of the texts and the label; this record has the keys "
        )
    else:
        problem = (
            "this line is the header of the table, but it is unclear which columns have the texts "
            "and the label; set task.columns to names of its columns, the texts first and the "
            "label last: task.columns="
        )
    raise ConfigError(
        f"{place}: {problem}{shortened((', ' if kind == 'key' else ',').join(names))}"
    )


def is_header(fields: Sequence[str]) -> bool:
    """Whether the fields of a line are usual names of columns, and one of them is of texts."""
    texts = {*FIRST_TEXT_KEYS, *SECOND_TEXT_KEYS, "context"}
    known = {*texts, *LABEL_KEYS, *SCORE_KEYS, *_OTHER_NAMES}
    names = {field.strip().casefold() for field in fields}
    lower = ({name.casefold() for name in part} for part in (texts, known))
    are_texts, are_known = (names & part for part in lower)
    return bool(are_texts) and are_known == names and len(names) == len(fields)


def check_word(word: Any, place: str) -> str:
    """Returns a word of a list; raises a `ConfigError` that begins with `place` if it is none."""
    if not isinstance(word, str) or not word or not json_file.is_text(word):
        raise ConfigError(f"{place} contains {quoted(word)}, expected a word")
    return word


def read_words(
    path: AnyPath, language: str, columns: Sequence[str], names: Sequence[str], chunk_tags: bool
) -> list[Words]:
    """Reads the sentences of a tagging file, one per record; skips records without words.

    Args:
      path: JSON lines, JSON or Parquet.
      language: a prefix `language:` is removed from the words if all words of the file have it, as
        in the original files of WikiAnn.
      columns: the key of the words and the key of the tags. If empty, these are the only key of
        `WORDS` and the only key of `_TAGS` in the first record. A record that has no tags is
        unlabelled.
      names: names of the tags that the file gives as zero-based numbers.
      chunk_tags: whether tags must be chunk tags (`conll.CHUNK_TAG`). If so, and if `columns` is
        empty, the key `ner_tags` has priority over other keys of tags.

    Raises:
      ConfigError: if the file cannot be read, or a record is invalid; the message names the place.
    """
    sentences: list[tuple[list[str], list[str | None] | None, str, str]] = []
    keys: tuple[str, str] | None = None
    for record, place in read(path):
        keys = keys or _choose_keys(record, place, columns, chunk_tags)
        words = _get_list(record, keys[0], place)
        for word in words:
            check_word(word, f"{place}: {keys[0]}")
        tags = _get_list(record, keys[1], place) if record.get(keys[1]) is not None else None
        if tags is not None and len(tags) != len(words):
            raise ConfigError(
                f"{place}: {len(words)} {keys[0]} but {len(tags)} {keys[1]}; each word needs a tag"
            )
        if words:
            tag_names = tags and [_tag_name(tag, keys[1], names, chunk_tags, place) for tag in tags]
            sentences.append((words, tag_names, place, stated_language(record)))
    prefix = find_language_prefix(language, (word for words, *_ in sentences for word in words))
    return [
        Words(
            tuple(word.removeprefix(prefix) for word in words),
            None if tags is None or None in tags else tuple(tag or "" for tag in tags),
            place,
            language=found,
        )
        for words, tags, place, found in sentences
    ]


def _choose_keys(
    record: Mapping[str, Any], place: str, columns: Sequence[str], chunk_tags: bool
) -> tuple[str, str]:
    """Returns the key of the words and the key of the tags, from the first record of a file."""
    lists = {key: value for key, value in record.items() if isinstance(value, list)}
    contents = ", ".join(f"{key} has {examples(map(str, value))}" for key, value in lists.items())
    hint = f"set task.columns=WORDS,TAGS to two keys of lists; {shortened(contents)}"
    if columns:
        if len(columns) != 2 or columns[0] not in record:
            raise ConfigError(f"{place}: task.columns={','.join(columns)}: {hint}")
        return columns[0], columns[1]
    word_keys = [key for key in WORDS if key in lists]
    tag_keys = [key for key in _TAGS if key in lists]
    if chunk_tags and "ner_tags" in tag_keys:
        tag_keys = ["ner_tags"]
    if len(word_keys) != 1 or len(tag_keys) > 1:
        raise ConfigError(f"{place}: it is unclear which keys have words and tags; {hint}")
    if not tag_keys and len(lists) > 1:
        raise ConfigError(f"{place}: it is unclear which key has the tags; {hint}")
    return word_keys[0], (tag_keys or ["tags"])[0]


def _get_list(record: Mapping[str, Any], key: str, place: str) -> list[Any]:
    value = record.get(key)
    if not isinstance(value, list):
        raise ConfigError(f"{place}: {key} is {quoted(value)}, expected a list")
    return value


def _tag_name(tag: Any, key: str, names: Sequence[str], chunk_tags: bool, place: str) -> str | None:
    """Returns the name of a tag, which a file gives as a name or as a number."""
    if isinstance(tag, str) and tag:
        return tag
    if not isinstance(tag, int) or isinstance(tag, bool):
        raise ConfigError(
            f"{place}: {key} contains {quoted(tag)}, expected a tag or the number of a class"
        )
    if chunk_tags and not names:
        raise ConfigError(
            f"{place}: {key} are numbers of classes; set task.names=O,B-PER,I-PER,... to the names "
            "of the classes, in the order of their numbers, as the card of the data set lists them"
        )
    return class_name(tag, names, place)
