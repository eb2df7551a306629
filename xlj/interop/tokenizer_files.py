"""Reads a Hugging Face folder's tokenizer as a vocabulary, and writes a vocabulary as a tokenizer.

ERNIE-M's tokenizer has steps beyond SentencePiece that xlj does not have: see docs/tokenizers.md.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xlj.config import ConfigError
from xlj.data.tokenizer.layout import MASK, ROLES, SPECIALS
from xlj.data.tokenizer.tokenizer_json import (
    BERT_SPECIALS,
    PARALLEL_SEPARATOR,
    convert_errors,
    frame_of,
    is_tokenizer_json,
    with_specials,
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

_TYPED = ("BertTokenizer", "DistilBertTokenizer", "DebertaTokenizer", "DebertaV2Tokenizer")
"""Classes of transformers 5 that use token types by default. The generic class for a tokenizer.json
does not."""

_KEYS = {
    "bos": ("cls", "bos"),
    "pad": ("pad",),
    "eos": ("sep", "eos"),
    "unk": ("unk",),
    "mask": ("mask",),
}
"""The names of each of `ROLES` in a folder's files, before _token or _token_id, in order of
precedence."""


def read(folder: Path) -> Vocabulary:
    """Reads the vocabulary of a Hugging Face folder.

    It reads the first of these files that exists: `sentencepiece.bpe.model` (XLM-R's layout, or
    ERNIE-M's ids if there is a `vocab.txt` too), `tokenizer.json`, BERT's `vocab.txt`, RoBERTa's
    `vocab.json` with `merges.txt`. The last two are converted to a tokenizer.json as transformers
    does.

    `tokenizer_config.json` and `special_tokens_map.json` name the special tokens that a
    tokenizer.json does not define; they are added to the vocabulary (`with_specials`). If these
    files, or the ids in `config.json`, contradict the tokenizer, the tokenizer is used and a
    warning is printed.

    Raises:
      ConfigError: if there is no tokenizer, a file is damaged or a link out of the folder, two
        files disagree, or added tokens are not in the vocabulary.
    """
    sentencepiece, words = _find(folder, SENTENCEPIECE), _find(folder, WORDS)
    whole, byte_words = _find(folder, JSON), _find(folder, BYTE_WORDS)
    if sentencepiece:
        vocabulary = Vocabulary.load(sentencepiece)
        if words:
            vocabulary = _ernie_m(vocabulary, words)
        if whole and (other := Vocabulary.load(whole)).size != vocabulary.size:
            raise ConfigError(
                f"{folder}: {SENTENCEPIECE} has {vocabulary.size} ids, but {JSON} {other.size}; "
                "remove the file that does not fit the weights"
            )
    elif whole:
        vocabulary = _with_named_specials(folder, whole, whole.read_bytes)
        _warn_of_frame(whole, vocabulary)
    elif words:
        config = _json(folder, CONFIG)
        vocabulary = _with_named_specials(folder, words, lambda: _content(_bert(words, config)))
    elif byte_words:
        merges = _find(folder, MERGES)
        if not merges:
            raise ConfigError(f"{folder} has {BYTE_WORDS}, but {MERGES} is missing")
        config = _json(folder, CONFIG)
        vocabulary = _with_named_specials(
            folder, byte_words, lambda: _content(_roberta(byte_words, merges, config))
        )
    else:
        raise ConfigError(
            f"{folder} has no tokenizer; expected {SENTENCEPIECE}, {JSON}, {WORDS}, or "
            f"{BYTE_WORDS} with {MERGES}"
        )
    if sentencepiece or not whole:
        _refuse_added(folder, vocabulary)
    _warn_of_ids(folder, vocabulary)
    return vocabulary


def has_pair_types(folder: Path, vocabulary: Vocabulary) -> bool:
    """Returns whether a folder's tokenizer gives the second sentence of a pair token type 1.

    `model_input_names` says whether the model gets token types. Without it, the class of
    transformers 5 decides, which the files name or which follows from `model_type`. The values of
    the types come from the template in tokenizer.json (BERT's template for a `vocab.txt`).

    Raises:
      ConfigError: if a single sentence has types other than 0, or a pair types other than 0 and 1.
    """
    config, model = _json(folder, CONFIG), _json(folder, MODEL_CONFIG)
    inputs = config.get("model_input_names")
    name = config.get("tokenizer_class") or model.get("tokenizer_class")
    if not isinstance(name, str):
        name = "BertTokenizer" if model.get("model_type") == "bert" else ""
    is_typed = name.removesuffix("Fast") in _TYPED
    if isinstance(inputs, list):
        is_typed = "token_type_ids" in inputs
    if not is_typed:
        return False
    tokenizer = _framing(folder, vocabulary)
    if tokenizer is None:
        return False
    single, pair = tokenizer.encode("a").type_ids, tokenizer.encode("a", "a").type_ids
    if any(single) or not {*pair} <= {0, 1} or pair != sorted(pair):
        raise ConfigError(
            f"{folder}: the tokenizer gives the token types {single} to a sentence and {pair} to a "
            "pair; xlj supports type 1 for the second sentence of a pair, and 0 otherwise"
        )
    return any(pair)


def separators(folder: Path, vocabulary: Vocabulary) -> int:
    """Returns how many `</s>` a folder's tokenizer puts between the sentences of a pair: one for
    BERT, two for XLM-R and ERNIE-M."""
    tokenizer = _framing(folder, vocabulary)
    if tokenizer is None:  # a SentencePiece model, as XLM-R and ERNIE-M have
        return 2
    last = vocabulary.native_specials[ROLES.index("eos")]
    return max(1, tokenizer.encode("a", "a").tokens[:-1].count(str(last)))


def _framing(folder: Path, vocabulary: Vocabulary) -> "Tokenizer | None":
    """Returns the tokenizer of a folder's tokenizer.json, or of the one made from other files."""
    whole = _find(folder, JSON)
    content = whole.read_bytes() if whole else vocabulary.model
    if not is_tokenizer_json(content):
        return None
    from tokenizers import Tokenizer

    with convert_errors("cannot be read by the tokenizers library"):
        return Tokenizer.from_str(content.decode())


def write(
    vocabulary: Vocabulary,
    folder: Path,
    model_max_length: int,
    typed: bool = False,
    pairs_as_rows: bool = False,
    separated: bool = False,
) -> None:
    """Writes a tokenizer that `transformers.AutoTokenizer` loads as a fast tokenizer, without
    remote code.

    The files are `tokenizer.json`, `tokenizer_config.json`, `special_tokens_map.json`, and for a
    SentencePiece vocabulary `sentencepiece.bpe.model`. Ids in the files are the native ones (for a
    SentencePiece vocabulary xlj's ids).

    Args:
      model_max_length: the maximum number of tokens, including `<s>` and `</s>`.
      typed: whether the model reads token types, which are 1 for the second sentence of a pair.
      pairs_as_rows: encode pairs as in xlj's rows, `<s> A </s> B </s>`. Otherwise they are encoded
        as in the tokenizer's family (XLM-R has two `</s>` between A and B, and no types).
      separated: with `pairs_as_rows`, use the vocabulary's separator instead of the first `</s>`.

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
        between = PARALLEL_SEPARATOR if separated else None
        files[JSON] = _with_pairs_of_rows(files[JSON], vocabulary, typed, between)
    names = {
        f"{key}_token": token
        for token, keys in zip(specials, _KEYS.values(), strict=True)
        for key in keys
        if token is not None
    }
    inputs = ["input_ids", "attention_mask"]
    if typed:
        inputs.insert(1, "token_type_ids")
    config = {
        # Not XLMRobertaTokenizer: since transformers 5 it takes only pieces and scores from
        # tokenizer.json, and uses its own normaliser.
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
    content: bytes, vocabulary: Vocabulary, typed: bool, between: str | None
) -> bytes:
    """Returns a tokenizer.json that encodes pairs as xlj's rows; unchanged if it does so already.

    Args:
      between: the token after the first sentence; None for `</s>`.
    """
    from tokenizers import Tokenizer, processors

    tokenizer = Tokenizer.from_str(content.decode())
    first, _, last, *_ = vocabulary.native_specials
    assert first and last  # all vocabularies have these
    between = between or last
    probe = tokenizer.encode("a", "a")
    inner = [token for token in probe.tokens if token in (first, between, last)]
    if inner == [first, between, last] and probe.tokens[0] == first:
        sides = np.cumsum([0, *(token == between for token in probe.tokens[:-1])])
        if probe.type_ids == (typed * sides).tolist():
            return content
    of_second = int(typed)
    frame: Any = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first}:0 $A:0 {between}:0 $B:{of_second} {last}:{of_second}",
        special_tokens=[
            (name, tokenizer.token_to_id(name)) for name in dict.fromkeys((first, between, last))
        ],
    )
    if trim := _trimming(json.loads(content).get("post_processor")):
        frame = processors.Sequence([processors.ByteLevel(**trim), frame])
    tokenizer.post_processor = frame
    return tokenizer.to_str().encode()


def _trimming(processor: Record | None) -> Record:
    """Returns the option of a byte-level post-processor that excludes the space before a word from
    its offsets; empty without such a post-processor."""
    kind = processor["type"] if processor else ""
    if processor and kind == "Sequence":
        options = [_trimming(part) for part in processor["processors"]]
        return next((option for option in options if option), {})
    if processor and kind in ("ByteLevel", "RobertaProcessing"):
        return {"trim_offsets": processor["trim_offsets"]}
    return {}


def _dump(content: Record) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _find(folder: Path, name: str) -> Path | None:
    return inside(folder, name) if (folder / name).is_file() else None


def _json(folder: Path, name: str) -> Record:
    """Returns the object in a JSON file; empty if the file does not exist."""
    path = _find(folder, name)
    return json_file.read_object(path) if path else {}


def _content(tokenizer: "Tokenizer") -> bytes:
    return tokenizer.to_str().encode()


def _with_named_specials(folder: Path, path: Path, content: Callable[[], bytes]) -> Vocabulary:
    """Returns the vocabulary of a tokenizer.json with the special tokens that other files name.

    Args:
      path: the file that the tokenizer.json is made of, for errors.
      content: returns the tokenizer.json.
    """
    named = list(_named_specials(folder))
    tokens: dict[str, list[str]] = {}
    for _, _, role, token in named:
        tokens.setdefault(role, []).append(token)
    try:
        with convert_errors("cannot be read by the tokenizers library"):
            vocabulary = Vocabulary(with_specials(content(), tokens))
    except ConfigError as error:
        raise ConfigError(f"vocabulary {path} {error}") from None
    of_role = dict(zip(ROLES, vocabulary.native_specials, strict=True))
    for file, key, role, token in named:
        if token != of_role[role]:
            _warn(f"{folder / file}: {key} is {quoted(token)}", of_role[role])
    return vocabulary


def _named_specials(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yields (file, key, role, token) of each special token that the folder's files name, in order
    of precedence."""
    for role, keys in _KEYS.items():
        for file in (CONFIG, SPECIALS_MAP):
            content = _json(folder, file)
            for key in (f"{key}_token" for key in keys):
                token = content.get(key)
                token = token.get("content") if isinstance(token, dict) else token
                if isinstance(token, str):
                    yield file, key, role, token


def _warn_of_ids(folder: Path, vocabulary: Vocabulary) -> None:
    """Warns about special ids in config.json that differ from the tokenizer's (mmBERT's
    cls_token_id does)."""
    config = _json(folder, MODEL_CONFIG)
    specials = zip(vocabulary.native_specials, vocabulary.native_special_ids, strict=True)
    for (token, number), keys in zip(specials, _KEYS.values(), strict=True):
        for key in (f"{key}_token_id" for key in keys):
            if isinstance(other := config.get(key), int) and other != number:
                _warn(f"{folder / MODEL_CONFIG}: {key} is {other}", token, number)


def _warn_of_frame(file: Path, vocabulary: Vocabulary) -> None:
    """Warns if a tokenizer.json does not add one token before and one after a sentence, as xlj's
    rows do."""
    bos, _, eos, *_ = vocabulary.native_specials
    in_file, in_rows = frame_of(file.read_bytes()), f"{bos} ... {eos}"
    if in_file != in_rows:
        print(
            f"warning: {file}: post_processor encodes a sentence as {quoted(in_file)}, but xlj as "
            f"{quoted(in_rows)}; vectors differ from those with transformers' tokenizer",
            file=sys.stderr,
        )


def _warn(claim: str, token: str | None, number: int | None = None) -> None:
    value = f"{quoted(token)}{'' if number is None else f' ({number})'}" if token else "none"
    print(f"warning: {claim}, but the tokenizer has {value}; xlj uses that", file=sys.stderr)


def _refuse_added(folder: Path, vocabulary: Vocabulary) -> None:
    decoder = _json(folder, CONFIG).get("added_tokens_decoder", {})
    try:
        added = {*_json(folder, ADDED), *(token["content"] for token in decoder.values())}
    except (AttributeError, KeyError, TypeError):
        raise ConfigError(
            f"{folder / CONFIG}: added_tokens_decoder must map ids to tokens, each with its content"
        ) from None
    beyond = sorted(added - {*vocabulary.pieces, *vocabulary.native_specials})
    if beyond:
        raise ConfigError(
            f"{folder}: {len(beyond)} added tokens, such as {quoted(beyond[0])}, are not in the "
            f"vocabulary's file; write {JSON} with transformers "
            "(AutoTokenizer.from_pretrained(folder).save_pretrained(folder)) and remove the other "
            "tokenizer files"
        )


def _ernie_m(vocabulary: Vocabulary, words: Path) -> Vocabulary:
    """Returns a SentencePiece vocabulary with the ids of ERNIE-M's vocab.txt.

    Its lines are `piece` or `piece<tab>id`. If the ids are XLM-R's, as in the released models, the
    vocabulary is returned unchanged. Otherwise it becomes a tokenizer.json.
    """
    try:
        numbered = [
            (int(given_id) if tab else number, piece)
            for number, line in enumerate(words.read_text("utf-8").rstrip("\n").split("\n"))
            for piece, tab, given_id in [line.partition("\t")]
        ]
    except ValueError as error:
        raise ConfigError(
            f"{words}: expected lines with a piece, or with a piece, a tab and its id ({error})"
        ) from None
    numbered.sort()
    for i, (number, _) in enumerate(numbered):
        if number != i:
            raise ConfigError(f"{words}: id {min(i, number)} is missing or occurs twice")
    pieces = [piece for _, piece in numbered]
    if missing := [name for name in BERT_SPECIALS if name not in pieces]:
        raise ConfigError(f"{words} has no {', '.join(missing)}")
    renamed = dict(zip(BERT_SPECIALS, _ROBERTA, strict=True))
    if tuple(renamed.get(piece, piece) for piece in pieces) == vocabulary.pieces:
        return vocabulary
    try:
        return Vocabulary(from_sentencepiece(vocabulary.model, pieces, BERT_SPECIALS))
    except ConfigError as error:
        raise ConfigError(f"{words}: {error}") from None


def _bert(words: Path, config: Record) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece.from_file(str(words), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),
        lowercase=config.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece("##")
    return _add_frame(tokenizer, BERT_SPECIALS, "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")


def _roberta(words: Path, merges: Path, config: Record) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    ids = json_file.read_object(words)
    for piece, number in ids.items():  # the library allocates memory for ids up to the highest
        if type(number) is not int or not 0 <= number < len(ids):
            raise ConfigError(
                f"has the id {quoted(number)} for {quoted(piece)}; expected ids from 0 to "
                f"{len(ids) - 1} without gaps"
            )
    tokenizer = Tokenizer(models.BPE.from_file(str(words), str(merges), unk_token=None))
    space_first = config.get("add_prefix_space", False)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space_first)
    tokenizer.decoder = decoders.ByteLevel()
    return _add_frame(tokenizer, _ROBERTA, "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0")


def _add_frame(tokenizer: "Tokenizer", specials: Sequence[str], pair: str) -> "Tokenizer":
    """Registers the special tokens that the vocabulary has, and adds them around sentences and
    pairs."""
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
