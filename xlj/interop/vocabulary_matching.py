"""MetaXLM's vocabulary matching (Chi et al., 2021, section 3.2): finds an old piece for each new
piece.

The old piece has the same text, or the text of a translation. The embedding of the new piece is
initialised from the embedding of the old piece.

In order, this file has the text of pieces and its normal forms, bilingual dictionaries (TSV files,
and MUSE's files, Lample et al., 2018), the matching, and the new rows of embeddings and biases.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.config.languages import matching
from xlj.config.sections import MATCHING_RULES
from xlj.data.rows.report import align_columns
from xlj.data.text.cleaning import SPACELESS
from xlj.data.tokenizer.layout import SPECIALS, Ragged
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import files
from xlj.io.hashing import combine, hash64, name_hash
from xlj.io.quoting import quoted


class Word(NamedTuple):
    """The text of a piece without its marker, and whether the piece starts a word."""

    text: str
    starts_word: bool


def specials(size: int) -> list[int]:
    """Returns the ids of `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>` among `size` ids."""
    return [*range(len(SPECIALS)), size - 1]


def words(vocabulary: Vocabulary) -> list[Word | None]:
    """Returns the `Word` of every id; None for special tokens and for pieces that are not text."""
    read_dictionaries = _READERS[vocabulary.markers]
    by_id = [read_dictionaries(piece) for piece in vocabulary.pieces]
    for special in specials(len(by_id)):
        by_id[special] = None
    return by_id


def folded(text: str) -> str:
    """Returns the text in NFKC, case folded, without whitespace at its ends."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).strip()


def unaccented(text: str) -> str:
    """Returns the `folded` text without the combining marks U+0300 to U+036F.

    BERT's uncased models remove all nonspacing marks. In Indic scripts such marks are vowels, so
    this function does not remove them.
    """
    letters = _ACCENTS.sub("", unicodedata.normalize("NFD", folded(text)))
    return unicodedata.normalize("NFC", letters)


def is_spaceless(text: str) -> bool:
    """Returns whether the text begins in a script without spaces between words.

    The scripts are Han, kana, Thai, Lao, Tibetan, Burmese and Khmer. In these scripts, markers of
    pieces do not show where words start.
    """
    return _SPACELESS.match(text) is not None


def _sentencepiece(piece: str) -> Word | None:
    if BYTE.fullmatch(piece):
        return None
    starts = piece.startswith("\u2581")
    return Word(piece[starts:].replace("\u2581", " "), starts)


def _byte_bpe(piece: str) -> Word | None:
    try:
        text = bytes(_BYTES[letter] for letter in piece).decode()
    except (KeyError, UnicodeDecodeError):  # an added token, or a part of a character
        return None
    starts = text.startswith(" ")
    return Word(text[starts:], starts)


def _wordpiece(piece: str) -> Word | None:
    continues = len(piece) > 2 and piece.startswith("##")
    text = piece[2:] if continues else piece
    if len(text) == 1 and _is_separate(text):
        # BERT splits text before and after these characters. So "," has no marker, although it
        # usually follows a word. BERT's vocabulary contains "##,", but no text yields this piece.
        return None if continues else Word(text, False)
    return Word(text, not continues)


def _is_separate(letter: str) -> bool:
    """Returns whether BERT makes a character a separate word: punctuation, ASCII symbols, Han."""
    punctuation = letter.isascii() or unicodedata.category(letter).startswith("P")
    return punctuation and not letter.isalnum() or _HAN.match(letter) is not None


_READERS = {"sentencepiece": _sentencepiece, "byte_bpe": _byte_bpe, "wordpiece": _wordpiece}

# GPT-2's alphabet: a printable byte of Latin-1 is its own letter; the k-th other byte is U+0100 +
# k.
_PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_HIDDEN = tuple(sorted(set(range(256)) - set(_PRINTED)))
_BYTES = {chr(byte): byte for byte in _PRINTED} | {chr(256 + k): b for k, b in enumerate(_HIDDEN)}

BYTE = re.compile("<0x[0-9A-F]{2}>")
"""The format of byte pieces, into which characters without a piece are split."""

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_ACCENTS = re.compile("[\u0300-\u036f]")
_SPACELESS = re.compile(f"[{SPACELESS}]")


RULES = ("special", "exact", "normalised", "dictionary", "accents", "place", "pieces", "none")
"""The rules by which the old rows of a new piece are chosen. `vocabulary_matching.match` and
`vocabulary_extension.initial_rows` define them."""

UNMATCHED = ("random", "mean", "sampled")
_BLOCK_ROWS = 4096


@dataclasses.dataclass(frozen=True)
class Matches:
    """The old ids from which each new id is initialised. A new row is the mean of the old rows.

    Attributes:
      sources: the old ids of each new id: none, one, or several (with the rule `pieces`).
      rules: int8 [new ids], the index in `RULES` of each new id's rule. Ids without sources have
        the rule `none`.
    """

    sources: Ragged
    rules: np.ndarray


def share_table(matches: Matches, counts: Mapping[str, np.ndarray]) -> str:
    """Returns a table with the share of each rule in percent.

    The first row counts the pieces of the vocabulary. Each further row counts the tokens of one
    language's text. Rules that apply to no piece have no column.

    Args:
      counts: for each language, how often each new id occurs in the text, int64 [new ids].
    """
    rows = {"vocabulary": np.ones(len(matches.rules), np.int64), **counts}
    used = np.unique(matches.rules)
    lines = [["", "total", *(f"{RULES[rule]} %" for rule in used)]]
    for name, n in rows.items():
        shares = [100 * n[matches.rules == rule].sum() / max(1, n.sum()) for rule in used]
        lines.append([name, f"{n.sum():,}", *(f"{share:.2f}" for share in shares)])
    return "\n".join(align_columns(lines))


def embeddings(
    table: np.ndarray, matches: Matches, unmatched: str, init_std: float, seed: int
) -> np.ndarray:
    """Computes the embedding of every new piece: float32 [new ids, hidden].

    A matched row is the mean of its old rows. The paper (MetaXLM; Chi et al., 2021) does not state
    how unmatched rows are initialised. Here `unmatched` selects one of three ways (ours). An
    unmatched row depends on the seed and its id, not on other unmatched rows.

    - `random`: N(0, init_std^2), as in a new model.
    - `mean`: the mean of all old rows.
    - `sampled`: N(mean, variance) of all old rows, separately for each column.

    Args:
      table: the old embeddings, floating [old ids, hidden].
      unmatched: one of `UNMATCHED`.
      init_std: standard deviation for `random`.
      seed: the random seed of `random` and `sampled`.

    Raises:
      ValueError: if `unmatched` is not in `UNMATCHED`.
    """
    if unmatched not in UNMATCHED:
        raise ValueError(f"unmatched={unmatched}: expected one of {', '.join(UNMATCHED)}")
    rows = _means(table, matches)
    unmatched_ids = np.flatnonzero(matches.sources.lengths == 0)
    mean = np.zeros(table.shape[1]) if unmatched == "random" else table.mean(0, dtype=np.float64)
    if unmatched == "mean":
        rows[unmatched_ids] = mean
        return rows
    std = init_std if unmatched == "random" else table.std(0, dtype=np.float64)
    for start in range(0, len(unmatched_ids), _BLOCK_ROWS):
        block = unmatched_ids[start : start + _BLOCK_ROWS]
        rows[block] = mean + std * _normal(block, table.shape[1], seed)
    return rows


def match_bias(bias: np.ndarray, matches: Matches) -> np.ndarray:
    """Computes the bias of every new piece in a head for masked tokens: float32 [new ids].

    The bias of a matched piece is the mean of its old biases. Unmatched pieces have the bias 0.

    Args:
      bias: the old biases, floating [old ids].
    """
    return _means(bias[:, None], matches)[:, 0]


def _means(table: np.ndarray, matches: Matches) -> np.ndarray:
    """Returns the mean of each new id's old rows, float32 [new ids, hidden]; zeros without old
    rows. With one old row, the new row is a copy, bit for bit (also of -0.0)."""
    sources = matches.sources
    rows = np.zeros((len(sources.lengths), table.shape[1]), np.float32)
    for nth in range(sources.lengths.max(initial=0)):
        longer = np.flatnonzero(sources.lengths > nth)
        values = table[sources.ids[sources.starts[longer] + nth]]
        rows[longer] = rows[longer] + values if nth else values  # 0.0 + -0.0 is 0.0
    several = np.flatnonzero(sources.lengths > 1)
    rows[several] /= sources.lengths[several, None]
    return rows


def _normal(ids: np.ndarray, hidden: int, seed: int) -> np.ndarray:
    """Returns pseudorandom standard normal values [ids, hidden], by the Box-Muller transform.

    Each value depends only on the seed, the id and the column.
    """
    keys = hash64(ids.astype(np.uint64), combine(seed, name_hash("unmatched rows")))
    bits = hash64(np.arange(hidden, dtype=np.uint64), keys[:, None])
    radius = np.sqrt(-2 * np.log(((bits >> np.uint64(32)) + 0.5) / 2**32))
    return radius * np.cos(2 * np.pi * (bits & np.uint64(2**32 - 1)) / 2**32)


Dictionary = Mapping[str, tuple[str, ...]]
"""Maps words to their translations into a language of the old model.

The old model is the model whose embeddings initialise the embeddings of a new vocabulary
(`match`). Keys are words in the form that `folded` returns. Values are the
translations as the file writes them, in the file's order."""


def load(
    templates: Sequence[str], pairs: Sequence[str] = (), known: str = "en"
) -> tuple[Dictionary, ...]:
    """Reads the dictionaries of language pairs, ordered by template and then by pair.

    Args:
      templates: paths. `{pair}` in a path is replaced by each of `pairs`. In a path without
        `{pair}`, the file name must contain the pair between dots (`train.en-de.tsv.gz`).
      pairs: pairs of `known` and another language: `en-de` (English words first) or `de-en`.
      known: the language of the old model into which the dictionaries translate.

    Raises:
      ConfigError: if a pair does not contain `known`; if a file cannot be read; if no file of a
        template with `{pair}` exists; or if the files of a pair are missing in all such templates.
    """
    for pair in pairs:
        if _is_known_first(pair, known) is None:
            raise ConfigError(f"dictionary {pair}: one language must be {known}, as in {known}-de")
    dictionaries: list[Dictionary] = []
    missing = dict.fromkeys(pairs) if any("{pair}" in template for template in templates) else {}
    for template in templates:
        if "{pair}" not in template:
            dictionaries.append(read_dictionaries(Path(template).expanduser(), known=known))
            continue
        filled = {pair: Path(template.replace("{pair}", pair)).expanduser() for pair in pairs}
        existing = [pair for pair in pairs if filled[pair].is_file()]
        if not existing:
            tried = ", ".join(map(str, filled.values())) or "no path, because there are no pairs"
            raise ConfigError(f"dictionary {template}: no file for any pair; tried {tried}")
        for pair in existing:
            missing.pop(pair, None)
            dictionaries.append(read_dictionaries(filled[pair], pair, known))
    if missing:
        raise ConfigError(
            f"dictionary {', '.join(missing)}: no file for these pairs in "
            f"{', '.join(templates)}; add the files or remove the pairs"
        )
    return tuple(dictionaries)


def read_dictionaries(path: Path, pair: str = "", known: str = "en") -> Dictionary:
    """Reads one dictionary file, plain or compressed, with translations into the language `known`.

    A line has two columns, separated by a tab; a translation may have several words. In a line
    without a tab, spaces separate two single words. MUSE has lines of both formats. A word may have
    several lines. Blank lines are skipped.

    Args:
      pair: the languages in the order of the columns, such as `en-de` or `de-en`. If empty, the
        file name must contain the pair between dots.
      known: the language of the old model. It may be the language of either column.

    Raises:
      ConfigError: if the pair does not contain `known`, the file cannot be read, or a line is
        malformed. For a malformed line, the message names the file and the line.
    """
    known_first = [
        _is_known_first(part, known) for part in ([pair] if pair else path.name.split("."))
    ]
    known_first = [order for order in known_first if order is not None]
    if len(known_first) != 1 and pair:
        raise ConfigError(f"dictionary {path}: the pair {pair} does not contain {known}")
    if len(known_first) != 1:
        raise ConfigError(
            f"dictionary {path}: the file name must contain one pair such as {known}-de or "
            f"de-{known} between dots; rename the file"
        )
    translations: dict[str, dict[str, None]] = {}
    for number, line in enumerate(files.lines(path), 1):
        if not line.strip():
            continue
        sides = [side.strip() for side in line.split("\t" if "\t" in line else None)]
        if len(sides) != 2 or not all(sides):
            raise ConfigError(
                f"{path}:{number}: {quoted(line)}; expected a word and its translation, separated "
                "by a tab or, for single words, by spaces"
            )
        translation, word = sides if known_first[0] else reversed(sides)
        translations.setdefault(folded(word), {})[translation] = None
    return {word: tuple(distinct) for word, distinct in translations.items()}


def _is_known_first(pair: str, known: str) -> bool | None:
    """Returns whether `known` is the first language of a pair; None if it is not in the pair."""
    codes = pair.split("-")
    for index in range(1, len(codes)):
        sides = "-".join(codes[:index]), "-".join(codes[index:])
        if all(sides) and (found := matching(known, sides)):
            return found[0] == sides[0]
    return None


_Form = Callable[[str], str]
_Index = dict[_Form, dict[Word, int]]  # for each form: old ids, by the text in this form


def match(
    old: Vocabulary,
    new: Vocabulary,
    dictionaries: Sequence[Dictionary] = (),
    rules: Sequence[str] = MATCHING_RULES,
) -> Matches:
    """Finds the old id from which each id of a new vocabulary is initialised.

    The paper looks up the word, then the normalised word. With dictionaries (+Dict) it translates
    first. The definition of normalised text, the treatment of markers and the order of rules are
    ours. The first rule that finds an old id is used, in the order of `rules`; special tokens come
    first:

    1. `special`: the special token with the same role (`<s>`, `<pad>`, `</s>`, `<unk>`, `<mask>`).
    2. `exact`: a piece with the same text; both pieces start a word, or neither does.
    3. `normalised`: as `exact`, but the texts are compared in NFKC and case folded.
    4. `dictionary`: a translation of the new piece, if this piece is a whole word. A whole word is
       a piece that starts a word, or any piece in a script without spaces. The translation must be
       a single old piece that starts a word, compared as in rules 2 and 3. Other translations are
       skipped. Dictionaries and their translations are tried in order.
    5. `accents`: as `normalised`, but without accents.
    6. `place`: as `exact`, `normalised` or `accents`, but only one of the two pieces starts a word.

    Rules 5 and 6 are guesses, so by default the dictionaries come before them: "für" should match
    "for" rather than "fur". If several old pieces have the same normal form, the piece that is
    equal to this form is used, or else the piece with the lowest id.

    Args:
      rules: names of the rules 2 to 6. The paper has `dictionary` first ("first searching the word
        translation in the dictionaries, and then applying the mapping strategy"). Without
        `accents`, rule 6 does not ignore accents.
    """
    index = _index(words(old))
    forms = (str, folded, unaccented) if "accents" in rules else (str, folded)
    look_ups: dict[str, Callable[[Word], Iterator[int]]] = {
        "exact": lambda word: _look_up(index, word, str),
        "normalised": lambda word: _look_up(index, word, folded),
        "dictionary": partial(_translated, index, dictionaries),
        "accents": lambda word: _look_up(index, word, unaccented),
        "place": partial(_elsewhere, index, forms),
    }

    size = len(new.pieces)
    old_ids = np.full(size, -1, np.int32)
    found_by = np.full(size, RULES.index("none"), np.int8)
    for new_id, word in enumerate(words(new)):
        if word is not None:
            hits = ((old_id, rule) for rule in rules for old_id in look_ups[rule](word))
            old_ids[new_id], rule = next(hits, (-1, "none"))
            found_by[new_id] = RULES.index(rule)
    old_ids[specials(size)] = specials(len(old.pieces))
    found_by[specials(size)] = RULES.index("special")
    return Matches(Ragged(old_ids[old_ids >= 0], (old_ids >= 0).astype(np.int64)), found_by)


def _translated(index: _Index, dictionaries: Sequence[Dictionary], word: Word) -> Iterator[int]:
    """Yields the old ids of the translations of a whole word."""
    if word.starts_word or is_spaceless(word.text):
        key = folded(word.text)
        for dictionary in dictionaries:
            for translation in dictionary.get(key, ()):
                yield from _look_up(index, Word(translation, True), str, folded)


def _elsewhere(index: _Index, forms: Sequence[_Form], word: Word) -> Iterator[int]:
    """Yields the old ids of pieces with the same text that start a word if `word` does not, or the
    reverse."""
    return _look_up(index, Word(word.text, not word.starts_word), *forms)


def _look_up(index: _Index, word: Word, *forms: _Form) -> Iterator[int]:
    for form in forms:
        text = form(word.text)
        old_id = index[form].get(Word(text, word.starts_word))
        if old_id is not None and (text or form is str):  # a single mark has an empty normal form
            yield old_id


def _index(old: Sequence[Word | None]) -> _Index:
    index: _Index = {str: {}, folded: {}, unaccented: {}}
    known = [(old_id, word) for old_id, word in enumerate(old) if word is not None]
    for form, ids in index.items():
        keyed = [(Word(form(word.text), word.starts_word), word, old_id) for old_id, word in known]
        keyed.sort(key=lambda item: item[0] != item[1])  # normal forms come first
        for key, _, old_id in keyed:
            ids.setdefault(key, old_id)
    return index
