"""Section `data` of a pretraining config: its keys, and when each key is used."""

import dataclasses
import functools
import math
import re
from functools import partial
from typing import Any

from xlj.config import row_kinds
from xlj.config.fields import (
    ConfigError,
    Section,
    Unused,
    UsedWhen,
    key,
    only_if_set,
    only_with,
)
from xlj.config.languages import matching


def _of_text(used_when: UsedWhen | None = None) -> UsedWhen:
    """Returns a condition: the key is used if the run builds rows from text, and if the condition
    `used_when` holds too."""

    def check(config: Any, path: str) -> Unused | None:
        if config.data.rows:
            return Unused(
                "data.rows names finished rows, so no text is read", allowed_in_recipes=True
            )
        return used_when(config, path) if used_when else None

    return check


_NO_VOCABULARY_IS_TRAINED = "data.vocabulary names a vocabulary, so none is trained"


def _for_cache(config: Any, path: str) -> Unused | None:
    """Checks that the cache is used: for text, or if `data.rows` is a hash."""
    if not config.data.rows or config.data.rows_are_hashed:
        return None
    return Unused("data.rows is the folder of finished rows", allowed_in_recipes=True)


def _for_training_a_vocabulary(config: Any, path: str) -> Unused | None:
    return (
        Unused(_NO_VOCABULARY_IS_TRAINED, allowed_in_recipes=True)
        if config.data.vocabulary
        else None
    )


def _for_text(config: Any, path: str) -> Unused | None:
    """Checks that a text source is used: for rows, or to train a vocabulary."""
    if not config.data.vocabulary or path in config.row_sources():
        return None
    reason = f"no objective that is on reads {path}, and {_NO_VOCABULARY_IS_TRAINED}"
    return Unused(reason, allowed_in_recipes=True)


def _for_examples(config: Any, path: str) -> Unused | None:
    if path in config.row_sources():
        return None
    return Unused(f"no objective that is on reads {path}", allowed_in_recipes=True)


def _for_languages(config: Any, path: str) -> Unused | None:
    if config.data.mono or config.data.examples:
        return None
    return Unused("data.mono is empty")


def _for_rows(config: Any, path: str) -> Unused | None:
    if path in {row_kinds.load(kind).length for kind in config.row_kinds()}:
        return None
    return Unused(f"no objective that is on reads rows of length {path}", allowed_in_recipes=True)


def _for_seqio(config: Any, path: str) -> Unused | None:
    data = config.data
    if any(text.startswith("seqio:") for text in data.mono + data.parallel + data.examples):
        return None
    return Unused("data.mono and data.parallel have no seqio: source")


_text_key = partial(key, used_when=_of_text())
_vocabulary_key = partial(key, used_when=_of_text(_for_training_a_vocabulary))


@dataclasses.dataclass(frozen=True)
class Data(Section, path="data"):
    rows: str = key(
        "",
        "row store to read: a folder that xlj.prepare built, or the name (a hash) of a folder in "
        "data.cache; empty: rows of data.mono and data.parallel, which are built if they are "
        "missing",
    )
    languages: tuple[str, ...] = key(
        (),
        "languages of the monolingual text, e.g. en,de,sw; @FILE: the file has a line for each "
        "language, with the language, its path and its factor, which set data.paths and "
        "data.sampled",
        used_when=_of_text(_for_languages),
    )
    paths: tuple[str, ...] = key(
        (),
        "the value of {path} in data.mono and data.examples for each language, such as "
        "en=english/part-*.txt,de=german.txt",
        used_when=_of_text(_for_languages),
    )
    mono: tuple[str, ...] = key(
        (),
        "monolingual sources, as templates with {language} or {path}, and optional wildcards *: "
        "text files (paths or URLs), FILE.jsonl#FIELD, FILE.parquet#FIELD (also .gz .xz .zst), "
        "phrasebook:{language} (the embedded corpus), tfds:NAME#FIELD or seqio:TASK#FIELD",
        used_when=_of_text(_for_text),
    )
    pairs: tuple[str, ...] = key(
        (),
        "language pairs of the parallel text, e.g. en-de,en-sw",
        used_when=_of_text(only_if_set("data.parallel")),
    )
    parallel: tuple[str, ...] = key(
        (),
        "parallel sources, as templates with {pair}, or {source} and {target}: TSV files, two "
        "line-aligned files joined by '|', FILE.jsonl#FIELD|FIELD, FILE.parquet#FIELD|FIELD, "
        "phrasebook:{pair} (the embedded corpus), tfds:NAME#FIELD|FIELD or seqio:TASK#FIELD|FIELD",
        used_when=_of_text(_for_text),
    )
    examples: tuple[str, ...] = key(
        (),
        "sources of examples of sentence encoders, as templates with {language}: JSON lines, "
        "Parquet or TSV with a header, of records with query, positive and negative (or the names "
        "of other libraries); with FILE[FIELD={language}] a field has the language. Or sources of "
        "a kind of rows of your own, in the formats of data.parallel, with the columns that the "
        "kind of rows names",
        used_when=_of_text(_for_examples),
    )
    seqio_modules: tuple[str, ...] = key(
        (), "Python modules to import that register seqio Tasks", used_when=_of_text(_for_seqio)
    )
    cache: str = key(
        "runs/rows",
        "folder for vocabularies and rows; may be a gs:// or s3:// URL",
        used_when=_for_cache,
    )
    alpha: float = key(
        0.7,
        "exponent a of language sampling: p_j = m_j^a / sum m_k^a for m_j tokens of language j",
        low=0,
        high=1,
    )
    sampled: tuple[str, ...] = key(
        (),
        "languages and pairs to draw rows from, such as en,de,en-de. If the list has no language, "
        "all languages are drawn; if it has no pair, all pairs are drawn. en=3 draws en three "
        "times as often as alpha gives, relative to the other names. Phases may change this key",
    )
    vocabulary: str = key(
        "",
        "SentencePiece model or tokenizer.json; empty: the vocabulary of init_from or a teacher, "
        "else a vocabulary that is trained on the text",
    )
    vocabulary_size: int = _vocabulary_key(
        250_002,
        "size of the trained vocabulary, including special tokens and <mask>; 0: 6,000 plus 1,000 "
        "per language",
        low=0,
    )
    vocabulary_type: str = _vocabulary_key(
        "unigram", "segmentation model of the trained vocabulary", choices=("unigram", "bpe")
    )
    vocabulary_lowercase: bool = _vocabulary_key(
        False, "lowercase all text in the trained vocabulary"
    )
    vocabulary_alpha: float = _vocabulary_key(
        0.3,
        "exponent of language sampling, like alpha, for the text that the vocabulary is trained on",
        low=0,
        high=1,
    )
    vocabulary_lines: int = _vocabulary_key(
        5_000_000, "maximum number of lines that the vocabulary is trained on", low=1000
    )
    vocabulary_coverage: float = _vocabulary_key(
        0.9995, "share of characters that the trained vocabulary covers", low=0.9, high=1
    )
    length: int = key(
        512, "tokens in a row of monolingual text", low=8, used_when=_of_text(_for_rows)
    )
    pair_length: int = key(
        512,
        "tokens in a row of sentence pairs; auto: enough for 99 % of the pairs of each source, "
        "within model.positions. Longer pairs are dropped and counted",
        low=8,
        auto=True,
        used_when=_of_text(_for_rows),
    )
    passage_length: int = key(
        256,
        "tokens of the passages in a row of examples. Longer passages are truncated and counted",
        low=8,
        used_when=_of_text(_for_rows),
    )
    held_out_share: float = _text_key(
        0.02,
        "share of the lines of each language that are held out from training for evaluation",
        low=0,
        high=0.2,
    )
    exclude: tuple[str, ...] = _text_key(
        (),
        "files of evaluation data, in the formats of data.mono. A training line is dropped if it "
        "equals a line of these files after normalisation; a pair is dropped if one of its sides "
        "does",
    )
    filter: str = _text_key(
        "",
        "your own module:function, which takes a line and returns whether to keep the line, or its "
        "score, or the language that it believes, or (language, score); a pair is kept if both "
        "sides are kept",
    )
    min_score: float = key(
        0.0,
        "lines to which data.filter gives a lower score are dropped",
        low=0,
        used_when=_of_text(only_if_set("data.filter")),
    )
    other_language: str = key(
        "keep",
        "what to do with a line that data.filter believes to be in another language; it is counted "
        "in both cases, and never moves to another language",
        choices=("keep", "drop"),
        used_when=_of_text(only_if_set("data.filter")),
    )
    duplicates: str = _text_key(
        "keep",
        "what to do with a line that repeats an earlier line of its language, or a pair that "
        "repeats an earlier pair of its language pair",
        choices=("keep", "drop"),
    )
    unit_bytes: int = _text_key(
        32 << 20,
        "bytes of input that one process reads at a time; a change of this value changes the rows",
        low=1 << 10,
    )
    malformed: str = _text_key(
        "error",
        "what to do with a malformed record (invalid UTF-8, wrong number of columns, blank line or "
        "side, line that is too long, broken JSON). error: stop; skip: skip the record and count "
        "it",
        choices=("error", "skip"),
    )
    malformed_share: float = key(
        0.001,
        "maximum share of malformed records in a language or pair; above this share, building rows "
        "stops. Checked from 10,000 records on",
        low=0,
        high=1,
        used_when=_of_text(only_with("data.malformed", "skip")),
    )
    damaged_rows: str = key(
        "stop",
        "what to do with a row whose checksum is wrong: stop the run, or replace the row by "
        "padding",
        choices=("stop", "pad"),
    )
    workers: int = _text_key(0, "number of processes that build rows; 0: one per core", low=0)

    @functools.cached_property
    def path_of(self) -> dict[str, str]:
        """The path of each language in `paths`.

        Raises:
          ConfigError: if an entry is not LANGUAGE=PATH, a language is twice in `paths`, or
            `languages` and `paths` do not have the same languages.
        """
        paths: dict[str, str] = {}
        for entry in self.paths:
            name, _, path = entry.partition("=")
            if not path or name in paths:
                raise ConfigError(
                    f"data.paths: {entry!r} must be LANGUAGE=PATH, with each language once"
                )
            paths[name] = path
        if paths and (other := paths.keys() ^ set(self.languages)):
            raise ConfigError(
                f"data.paths: {sorted(other)[0]} must be both in data.paths and in data.languages"
            )
        return paths

    @functools.cached_property
    def shares(self) -> dict[str, float]:
        """The factor of each name in `sampled`; 1 for a name without a factor.

        A language may have another code than in `languages`: `en` for `eng_Latn`.

        Raises:
          ConfigError: if a factor is not a number above 0.
        """
        shares, known = {}, {*self.languages, *self.pairs}
        for entry in self.sampled:
            name, _, factor = entry.partition("=")
            if name not in known and len(codes := matching(name, self.languages)) == 1:
                (name,) = codes
            try:
                shares[name] = float(factor) if "=" in entry else 1.0
            except ValueError:
                shares[name] = math.nan
            if not 0 < shares[name] < math.inf:
                raise ConfigError(
                    f"data.sampled: {entry!r} must be NAME or NAME=FACTOR with a factor above 0"
                )
        return shares

    @property
    def example_sources(self) -> tuple[str, ...]:
        """The names of the sources of examples, `NAME@TEMPLATE` in `examples`; without those that
        have no name."""
        names = (template.partition("@")[0] for template in self.examples if "@" in template)
        return tuple(dict.fromkeys(name for name in names if name.isidentifier()))

    @property
    def rows_are_hashed(self) -> bool:
        """Whether `rows` is the hash of a row store, not a folder."""
        return re.fullmatch("[0-9a-f]{16}", self.rows) is not None

    @property
    def rows_folder(self) -> str:
        """The folder or URL of the rows that `rows` names."""
        return f"{self.cache.rstrip('/')}/{self.rows}" if self.rows_are_hashed else self.rows
