"""Reads a Hugging Face folder's tokenizer as a vocabulary, and writes a vocabulary as a tokenizer.

xlj supports ERNIE-M's tokenizer except its steps before SentencePiece (see docs/tokenizers.md).
"""

import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xlj.config import ConfigError
from xlj.data.tokenizer.layout import MASK, ROLES, SPECIALS
from xlj.data.tokenizer.tokenizer_json import (
    BERT_SPECIALS,
    add_specials,
    convert_errors,
    describe_frame,
    is_tokenizer_json,
    load_tokenizer,
)
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop.folder import CONFIG as MODEL_CONFIG
from xlj.interop.folder import inside
from xlj.interop.sentencepiece_json import from_sentencepiece
from xlj.io import atomic, json_file
from xlj.io.json_file import Record
from xlj.io.quoting import quoted

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ROBERTA = (*SPECIALS, MASK)

SENTENCEPIECE, JSON = "sentencepiece.bpe.model", "tokenizer.json"
WORDS, BYTE_WORDS, MERGES = "vocab.txt", "vocab.json", "merges.txt"
CONFIG, SPECIALS_MAP = "tokenizer_config.json", "special_tokens_map.json"
ADDED = "added_tokens.json"

_CLASSES_WITH_TYPES = (
    "BertTokenizer",
    "DistilBertTokenizer",
    "DebertaTokenizer",
    "DebertaV2Tokenizer",
)
"""The tokenizer classes of transformers 5 that return token types by default."""

_NAMES = {
    "bos": ("cls", "bos"),
    "pad": ("pad",),
    "eos": ("sep", "eos"),
    "unk": ("unk",),
    "mask": ("mask",),
}
"""The names of each special token in a folder's files, by its role (`ROLES`), in order of
precedence. The keys of the files are NAME_token and NAME_token_id."""


def read(folder: Path) -> Vocabulary:
    """Reads the vocabulary of a Hugging Face folder.

    It reads the first of these files that exists:

    1. `sentencepiece.bpe.model`, with XLM-R's ids, or with ERNIE-M's ids if `vocab.txt` exists too;
    2. `tokenizer.json`;
    3. BERT's `vocab.txt`, converted to a tokenizer.json as transformers does;
    4. RoBERTa's `vocab.json` with `merges.txt`, converted in the same way.

    Special tokens that a tokenizer.json does not define come from `tokenizer_config.json` and
    `special_tokens_map.json`; they are added to the vocabulary (`add_specials`). If these files,
    or the ids in `config.json`, contradict the tokenizer, xlj prints a warning and uses the
    tokenizer.

    Raises:
      ConfigError: if there is no tokenizer, a file is damaged or is a link to another folder, two
        files disagree, or added tokens are not in the vocabulary.
    """
    sentencepiece, words_path = _find(folder, SENTENCEPIECE), _find(folder, WORDS)
    json_path, byte_words_path = _find(folder, JSON), _find(folder, BYTE_WORDS)
    if sentencepiece:
        vocabulary = Vocabulary.load(sentencepiece)
        if words_path:
            vocabulary = _with_ernie_m_ids(vocabulary, words_path)
        if json_path and (json_vocabulary := Vocabulary.load(json_path)).size != vocabulary.size:
            raise ConfigError(
                f"{folder}: {SENTENCEPIECE} has {vocabulary.size} ids, but {JSON} has "
                f"{json_vocabulary.size}; remove the file that does not belong to the weights"
            )
    elif json_path:
        vocabulary = _with_named_specials(folder, json_path, json_path.read_bytes)
        _warn_of_frame(json_path, vocabulary)
    elif words_path:
        config = _read_optional(folder, CONFIG)
        vocabulary = _with_named_specials(
            folder, words_path, lambda: _to_json(_bert_tokenizer(words_path, config))
        )
    elif byte_words_path:
        merges = _find(folder, MERGES)
        if not merges:
            raise ConfigError(f"{folder} has {BYTE_WORDS} but no {MERGES}; download {MERGES} too")
        config = _read_optional(folder, CONFIG)
        vocabulary = _with_named_specials(
            folder,
            byte_words_path,
            lambda: _to_json(_roberta_tokenizer(byte_words_path, merges, config)),
        )
    else:
        raise ConfigError(
            f"{folder} has no tokenizer; expected {SENTENCEPIECE}, {JSON}, {WORDS}, or "
            f"{BYTE_WORDS} with {MERGES}"
        )
    if sentencepiece or not json_path:
        _refuse_added(folder, vocabulary)
    _warn_of_ids(folder, vocabulary)
    return vocabulary


def pair_marks(folder: Path, vocabulary: Vocabulary, has_types: bool) -> tuple[str, ...]:
    """Returns the `model.pair_marks` with which xlj encodes pairs as a folder's tokenizer does.

    Args:
      has_types: whether the model has an embedding of the second token type.

    Raises:
      ConfigError: if xlj does not support the token types of the tokenizer.
    """
    tokenizer = _load_tokenizer(folder, vocabulary) if vocabulary.separator else None
    marks = {
        "types": has_types and _has_pair_types(folder, vocabulary),
        "separator": tokenizer and vocabulary.separator in tokenizer.encode("a", "a").tokens,
    }
    return tuple(mark for mark, is_set in marks.items() if is_set)


def _has_pair_types(folder: Path, vocabulary: Vocabulary) -> bool:
    """Returns whether a folder's tokenizer gives the second sentence of a pair token type 1.

    The tokenizer returns token types if `model_input_names` in tokenizer_config.json contains
    `token_type_ids`. Without the key `model_input_names`, it returns them if its class in
    transformers 5 does so by default. tokenizer_config.json or config.json names the class; without
    a name, a model of `model_type` bert has BertTokenizer. The values of the types come from the
    template in tokenizer.json. A `vocab.txt` has BERT's template.

    Raises:
      ConfigError: if the types of a single sentence are not all 0, or the types of a pair are not
        0 and then 1.
    """
    config, model = _read_optional(folder, CONFIG), _read_optional(folder, MODEL_CONFIG)
    inputs = config.get("model_input_names")
    name = config.get("tokenizer_class") or model.get("tokenizer_class")
    if not isinstance(name, str):
        name = "BertTokenizer" if model.get("model_type") == "bert" else ""
    has_types = name.removesuffix("Fast") in _CLASSES_WITH_TYPES
    if isinstance(inputs, list):
        has_types = "token_type_ids" in inputs
    if not has_types:
        return False
    tokenizer = _load_tokenizer(folder, vocabulary)
    if tokenizer is None:
        return False
    single, pair = tokenizer.encode("a").type_ids, tokenizer.encode("a", "a").type_ids
    if any(single) or not {*pair} <= {0, 1} or pair != sorted(pair):
        raise ConfigError(
            f"{folder}: the tokenizer gives a sentence the token types {single}, and a pair "
            f"{pair}; xlj supports only type 1 for the second sentence of a pair, and 0 for all "
            "other tokens"
        )
    return any(pair)


def count_separators(folder: Path, vocabulary: Vocabulary) -> int:
    """Returns how many `</s>` a folder's tokenizer puts between the sentences of a pair.

    BERT has one, XLM-R and ERNIE-M have two.
    """
    tokenizer = _load_tokenizer(folder, vocabulary)
    if tokenizer is None:  # a SentencePiece model: XLM-R or ERNIE-M
        return 2
    last = vocabulary.native_specials[ROLES.index("eos")]
    return max(1, tokenizer.encode("a", "a").tokens[:-1].count(str(last)))


def _load_tokenizer(folder: Path, vocabulary: Vocabulary) -> "Tokenizer | None":
    """Returns the tokenizer of a folder's tokenizer.json, or of a tokenizer.json that xlj made from
    other files. None for a SentencePiece model."""
    json_path = _find(folder, JSON)
    content = json_path.read_bytes() if json_path else vocabulary.model
    return load_tokenizer(content) if is_tokenizer_json(content) else None


def write(
    vocabulary: Vocabulary,
    folder: Path,
    model_max_length: int,
    pair_marks: Collection[str] = (),
    pairs_as_rows: bool = False,
) -> None:
    """Writes a tokenizer that `transformers.AutoTokenizer` loads without remote code.

    The files are `tokenizer.json`, `tokenizer_config.json`, `special_tokens_map.json`, and for a
    SentencePiece vocabulary also `sentencepiece.bpe.model`. The ids in these files are the native
    ids (`Vocabulary.native_ids`). For a SentencePiece vocabulary, they are equal to xlj's ids.

    Args:
      model_max_length: the maximum number of tokens, including `<s>` and `</s>`.
      pair_marks: the value of `model.pair_marks`. With `types`, the tokenizer returns token types.
      pairs_as_rows: whether pairs are encoded as in xlj's rows, `<s> A </s> B </s>`, with the token
        types and the separator of `pair_marks`. Otherwise pairs are encoded as in the tokenizer's
        family (XLM-R has two `</s>` between A and B, and no types).

    Raises:
      ConfigError: if no tokenizer.json is equivalent to a SentencePiece model
        (`sentencepiece_json`).
    """
    specials = vocabulary.native_specials
    if is_tokenizer_json(vocabulary.model):
        files = {JSON: vocabulary.model}
    else:
        content = from_sentencepiece(vocabulary.model, vocabulary.pieces, _ROBERTA)
        files = {JSON: content, SENTENCEPIECE: vocabulary.model}
    if pairs_as_rows:
        files[JSON] = _with_pairs_of_rows(files[JSON], vocabulary, pair_marks)
    names = {
        f"{key}_token": token
        for token, keys in zip(specials, _NAMES.values(), strict=True)
        for key in keys
        if token is not None
    }
    inputs = ["input_ids", "attention_mask"]
    if "types" in pair_marks:
        inputs.insert(1, "token_type_ids")
    config = {
        # XLMRobertaTokenizer of transformers 5 would read only pieces and scores from
        # tokenizer.json, and would use its own normaliser.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model_max_length,
        "model_input_names": inputs,
        "clean_up_tokenization_spaces": False,
        **names,
    }
    files |= {CONFIG: _dump(config), SPECIALS_MAP: _dump(names)}
    for name, content in files.items():
        atomic.write(folder / name, content)


def _with_pairs_of_rows(
    content: bytes, vocabulary: Vocabulary, pair_marks: Collection[str]
) -> bytes:
    """Returns a tokenizer.json that encodes pairs as in xlj's rows.

    Args:
      content: the tokenizer.json. It is returned unchanged if it already encodes pairs in this way.
      pair_marks: `types` if the token types of the second sentence and its `</s>` are 1, and
        `separator` if the vocabulary's separator follows the first sentence, not `</s>`.
    """
    from tokenizers import Tokenizer, processors

    tokenizer = Tokenizer.from_str(content.decode())
    first, _, last, *_ = vocabulary.native_specials
    assert first and last  # all vocabularies have <s> and </s>
    separator = "separator" in pair_marks and vocabulary.separator or last
    second_type = int("types" in pair_marks)
    probe = load_tokenizer(content).encode("a", "a")
    inner = [token for token in probe.tokens if token in (first, separator, last)]
    if inner == [first, separator, last] and probe.tokens[0] == first:
        sides = np.cumsum([0, *(token == separator for token in probe.tokens[:-1])])
        if probe.type_ids == (second_type * sides).tolist():
            return content
    frame: Any = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first}:0 $A:0 {separator}:0 $B:{second_type} {last}:{second_type}",
        special_tokens=[
            (name, tokenizer.token_to_id(name)) for name in dict.fromkeys((first, separator, last))
        ],
    )
    if trim := _find_trim_option(json.loads(content).get("post_processor")):
        frame = processors.Sequence([processors.ByteLevel(**trim), frame])
    tokenizer.post_processor = frame
    return tokenizer.to_str().encode()


def _find_trim_option(processor: Record | None) -> Record:
    """Returns the option `trim_offsets` of a byte-level post-processor, as a dict.

    With this option, a word's offsets exclude the space before the word. The dict is empty without
    such a post-processor.
    """
    kind = processor["type"] if processor else ""
    if processor and kind == "Sequence":
        options = [_find_trim_option(part) for part in processor["processors"]]
        return next((option for option in options if option), {})
    if processor and kind in ("ByteLevel", "RobertaProcessing"):
        return {"trim_offsets": processor["trim_offsets"]}
    return {}


def _dump(content: Record) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _find(folder: Path, name: str) -> Path | None:
    return inside(folder, name) if (folder / name).is_file() else None


def _read_optional(folder: Path, name: str) -> Record:
    """Returns the object in a JSON file; empty if the file does not exist."""
    path = _find(folder, name)
    return json_file.read_object(path) if path else {}


def _to_json(tokenizer: "Tokenizer") -> bytes:
    return tokenizer.to_str().encode()


def _with_named_specials(folder: Path, path: Path, content: Callable[[], bytes]) -> Vocabulary:
    """Returns the vocabulary of a tokenizer.json with the special tokens that other files name.

    Args:
      path: the file from which the tokenizer.json is made, for errors.
      content: a function that returns the tokenizer.json.
    """
    named = list(_named_specials(folder))
    tokens: dict[str, list[str]] = {}
    for _, _, role, token in named:
        tokens.setdefault(role, []).append(token)
    try:
        with convert_errors("cannot be read by the tokenizers library"):
            vocabulary = Vocabulary(add_specials(content(), tokens))
    except ConfigError as error:
        raise ConfigError(f"vocabulary {path} {error}") from None
    of_role = dict(zip(ROLES, vocabulary.native_specials, strict=True))
    for file, key, role, token in named:
        if token != of_role[role]:
            _warn(f"{folder / file}: {key} is {quoted(token)}", of_role[role])
    return vocabulary


def _named_specials(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yields (file, key, role, token) for each special token in the folder's files, in order of
    precedence."""
    for role, keys in _NAMES.items():
        for file in (CONFIG, SPECIALS_MAP):
            content = _read_optional(folder, file)
            for key in (f"{key}_token" for key in keys):
                token = content.get(key)
                token = token.get("content") if isinstance(token, dict) else token
                if isinstance(token, str):
                    yield file, key, role, token


def _warn_of_ids(folder: Path, vocabulary: Vocabulary) -> None:
    """Warns about ids of special tokens in config.json that differ from the tokenizer's ids.

    For example, mmBERT has a different cls_token_id. There is no warning about `<pad>` in BERT,
    whose positions do not depend on it; multilingual-e5-small has BERT's id with XLM-R's tokenizer.
    """
    config = _read_optional(folder, MODEL_CONFIG)
    unused = "pad_token_id" if config.get("model_type") == "bert" else None
    specials = zip(vocabulary.native_specials, vocabulary.native_special_ids, strict=True)
    for (token, number), keys in zip(specials, _NAMES.values(), strict=True):
        for key in (f"{key}_token_id" for key in keys):
            config_id = config.get(key)
            if key != unused and isinstance(config_id, int) and config_id != number:
                _warn(f"{folder / MODEL_CONFIG}: {key} is {config_id}", token, number)


def _warn_of_frame(file: Path, vocabulary: Vocabulary) -> None:
    """Warns if a tokenizer.json does not encode a sentence as xlj does, with one token before and
    one token after it."""
    bos, _, eos, *_ = vocabulary.native_specials
    in_file, in_rows = describe_frame(file.read_bytes()), f"{bos} ... {eos}"
    if in_file != in_rows:
        print(
            f"warning: {file}: post_processor encodes a sentence as {quoted(in_file)}, but xlj "
            f"encodes it as {quoted(in_rows)}, so xlj's vectors differ from transformers' vectors",
            file=sys.stderr,
        )


def _warn(claim: str, token: str | None, number: int | None = None) -> None:
    value = f"{quoted(token)}{'' if number is None else f' ({number})'}" if token else "none"
    print(
        f"warning: {claim}, but the tokenizer has {value}; xlj uses the tokenizer's value",
        file=sys.stderr,
    )


def _refuse_added(folder: Path, vocabulary: Vocabulary) -> None:
    decoder = _read_optional(folder, CONFIG).get("added_tokens_decoder", {})
    try:
        added = {*_read_optional(folder, ADDED), *(token["content"] for token in decoder.values())}
    except (AttributeError, KeyError, TypeError):
        raise ConfigError(
            f"{folder / CONFIG}: added_tokens_decoder must map ids to objects with the key content"
        ) from None
    missing_tokens = sorted(added - {*vocabulary.pieces, *vocabulary.native_specials})
    if missing_tokens:
        raise ConfigError(
            f"{folder}: {len(missing_tokens)} added tokens, such as {quoted(missing_tokens[0])}, "
            "are not in the "
            f"vocabulary file; write {JSON} with transformers "
            "(AutoTokenizer.from_pretrained(folder).save_pretrained(folder)) and remove the other "
            "tokenizer files"
        )


def _with_ernie_m_ids(vocabulary: Vocabulary, words_path: Path) -> Vocabulary:
    """Returns a SentencePiece vocabulary with the ids of ERNIE-M's vocab.txt.

    Each line of vocab.txt is `piece` or `piece<tab>id`. If the ids are XLM-R's, as in the released
    models, the vocabulary is returned unchanged. Otherwise it is converted to a tokenizer.json.
    """
    try:
        numbered = [
            (int(id_text) if tab else number, piece)
            for number, line in enumerate(words_path.read_text("utf-8").rstrip("\n").split("\n"))
            for piece, tab, id_text in [line.partition("\t")]
        ]
    except ValueError as error:
        raise ConfigError(
            f"{words_path}: expected `piece` or `piece TAB id` on each line ({error})"
        ) from None
    numbered.sort()
    for i, (number, _) in enumerate(numbered):
        if number != i:
            raise ConfigError(f"{words_path}: id {min(i, number)} is missing or occurs twice")
    pieces = [piece for _, piece in numbered]
    if missing := [name for name in BERT_SPECIALS if name not in pieces]:
        raise ConfigError(f"{words_path} lacks the special tokens {', '.join(missing)}")
    renamed = dict(zip(BERT_SPECIALS, _ROBERTA, strict=True))
    if tuple(renamed.get(piece, piece) for piece in pieces) == vocabulary.pieces:
        return vocabulary
    try:
        return Vocabulary(from_sentencepiece(vocabulary.model, pieces, BERT_SPECIALS))
    except ConfigError as error:
        raise ConfigError(f"{words_path}: {error}") from None


def _bert_tokenizer(words_path: Path, config: Record) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece.from_file(str(words_path), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),
        lowercase=config.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece("##")
    return _add_frame(tokenizer, BERT_SPECIALS, "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")


def _roberta_tokenizer(words_path: Path, merges: Path, config: Record) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    ids = json_file.read_object(words_path)
    for piece, number in ids.items():  # the library allocates memory for all ids up to the highest
        if type(number) is not int or not 0 <= number < len(ids):
            raise ConfigError(
                f"has the id {quoted(number)} for {quoted(piece)}; expected ids from 0 to "
                f"{len(ids) - 1} without gaps"
            )
    tokenizer = Tokenizer(models.BPE.from_file(str(words_path), str(merges), unk_token=None))
    space_first = config.get("add_prefix_space", False)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space_first)
    tokenizer.decoder = decoders.ByteLevel()
    return _add_frame(tokenizer, _ROBERTA, "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0")


def _add_frame(tokenizer: "Tokenizer", specials: Sequence[str], pair: str) -> "Tokenizer":
    """Registers the special tokens of the vocabulary, and makes the tokenizer add them to sentences
    and pairs.

    Args:
      pair: the template of a pair, in the format of `TemplateProcessing`.
    """
    from tokenizers import AddedToken, processors

    known = [name for name in specials if tokenizer.token_to_id(name) is not None]
    tokenizer.add_special_tokens(
        [AddedToken(name, lstrip=name == MASK, normalized=False, special=True) for name in known]
    )
    first, _, last, *_ = specials
    if first in known and last in known:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{first} $A {last}",
            pair=pair,
            special_tokens=[(name, tokenizer.token_to_id(name)) for name in (first, last)],
        )
    return tokenizer
