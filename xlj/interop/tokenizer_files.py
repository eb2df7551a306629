"""The tokenizer in a Hugging Face folder, read into a vocabulary and written from one.

ERNIE-M's own tokenizer does more than SentencePiece, which is not done here: docs/tokenizers.md.
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
"""Classes of transformers 5 that give a model token types where no file says so. The class that
stands for any tokenizer.json does not."""

_KEYS = {
    "bos": ("cls", "bos"),
    "pad": ("pad",),
    "eos": ("sep", "eos"),
    "unk": ("unk",),
    "mask": ("mask",),
}
"""The names of each of `ROLES` in a folder's files, before _token or _token_id; the first goes
first."""


def read(folder: Path) -> Vocabulary:
    """The vocabulary of a Hugging Face folder.

    Looked for in this order: `sentencepiece.bpe.model` (XLM-R's layout, or ERNIE-M's ids where
    `vocab.txt` is beside it), `tokenizer.json`, BERT's `vocab.txt`, RoBERTa's `vocab.json` and
    `merges.txt`. The last two become what transformers makes of them.

    `tokenizer_config.json` and `special_tokens_map.json` name the special tokens that a
    tokenizer.json does not state itself; the vocabulary then states them (`with_specials`). Where
    they contradict it, or the ids of `config.json` do, the tokenizer is right and a warning names
    both.

    Raises:
      ConfigError: if there is none, a file is damaged or a link out of the folder, two files
        disagree, or tokens were added that the vocabulary does not have.
    """
    sentencepiece, words = _find(folder, SENTENCEPIECE), _find(folder, WORDS)
    whole, byte_words = _find(folder, JSON), _find(folder, BYTE_WORDS)
    if sentencepiece:
        vocabulary = Vocabulary.load(sentencepiece)
        if words:
            vocabulary = _ernie_m(vocabulary, words)
        if whole and (other := Vocabulary.load(whole)).size != vocabulary.size:
            raise ConfigError(
                f"{folder}: {SENTENCEPIECE} gives {vocabulary.size} ids, {JSON} {other.size}; "
                "remove the one that does not belong to the weights"
            )
    elif whole:
        vocabulary = _naming(folder, whole, whole.read_bytes)
        _warn_of_frame(whole, vocabulary)
    elif words:
        config = _json(folder, CONFIG)
        vocabulary = _naming(folder, words, lambda: _content(_bert(words, config)))
    elif byte_words:
        merges = _find(folder, MERGES)
        if not merges:
            raise ConfigError(f"{folder} has {BYTE_WORDS} but not the {MERGES} that belongs to it")
        config = _json(folder, CONFIG)
        vocabulary = _naming(
            folder, byte_words, lambda: _content(_roberta(byte_words, merges, config))
        )
    else:
        raise ConfigError(
            f"{folder} has no tokenizer: neither {SENTENCEPIECE}, {JSON}, {WORDS}, nor "
            f"{BYTE_WORDS} with {MERGES}"
        )
    if sentencepiece or not whole:
        _refuse_added(folder, vocabulary)
    _warn_of_ids(folder, vocabulary)
    return vocabulary


def has_pair_types(folder: Path, vocabulary: Vocabulary) -> bool:
    """Whether the tokenizer of a folder gives the second sentence of a pair token type 1.

    `model_input_names` says whether there are types at all, else the class that transformers 5
    takes: the files name it, or it is that of `model_type`. The template of tokenizer.json decides
    which they are, or that of BERT, if it is made of `vocab.txt`.

    Raises:
      ConfigError: if a single sentence has other types than 0, or a pair others than 0 and 1.
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
            f"{folder}: the tokenizer gives a sentence the token types {single} and a pair {pair}; "
            "xlj gives the second sentence of a pair 1, and all else 0"
        )
    return any(pair)


def separators(folder: Path, vocabulary: Vocabulary) -> int:
    """How many `</s>` the tokenizer of a folder puts between the sentences of a pair: BERT's one,
    XLM-R's and ERNIE-M's two."""
    tokenizer = _framing(folder, vocabulary)
    if tokenizer is None:  # SentencePiece, which is XLM-R's or ERNIE-M's
        return 2
    last = vocabulary.native_specials[ROLES.index("eos")]
    return max(1, tokenizer.encode("a", "a").tokens[:-1].count(str(last)))


def _framing(folder: Path, vocabulary: Vocabulary) -> "Tokenizer | None":
    """The tokenizer of a folder's tokenizer.json, or of one that was made of its other files."""
    whole = _find(folder, JSON)
    content = whole.read_bytes() if whole else vocabulary.model
    if not is_tokenizer_json(content):
        return None
    from tokenizers import Tokenizer

    with convert_errors("is not one that the tokenizers library reads"):
        return Tokenizer.from_str(content.decode())


def write(
    vocabulary: Vocabulary,
    folder: Path,
    model_max_length: int,
    typed: bool = False,
    pairs_as_rows: bool = False,
    separated: bool = False,
) -> None:
    """Writes files that `transformers.AutoTokenizer` loads, as a fast tokenizer and without code of
    ours: `tokenizer.json`, `tokenizer_config.json`, `special_tokens_map.json`, and for a
    SentencePiece vocabulary `sentencepiece.bpe.model`. The ids in the files are the native ones;
    those of a SentencePiece vocabulary are ours.

    Args:
      model_max_length: the most tokens that the model takes, `<s>` and `</s>` included.
      typed: the model reads token types, which are 1 for the second sentence of a pair.
      pairs_as_rows: frame pairs as xlj's rows do, `<s> A </s> B </s>`, not as the
        tokenizer's family does: XLM-R's has two `</s>` between A and B, and no types.
      separated: with `pairs_as_rows`, the vocabulary's separator stands in the place of that
        `</s>`.

    Raises:
      ConfigError: if a SentencePiece model has no equal tokenizer.json (`sentencepiece_json`).
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
        # Not XLMRobertaTokenizer, which since transformers 5 takes from tokenizer.json no more than
        # pieces and scores, and has a normaliser of its own.
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
    """A tokenizer.json that frames pairs as xlj's rows, with this token after the first sentence
    (None: `</s>`); as it is, if it does so already."""
    from tokenizers import Tokenizer, processors

    tokenizer = Tokenizer.from_str(content.decode())
    first, _, last, *_ = vocabulary.native_specials
    assert first and last  # a vocabulary always has these
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
    """The option of a byte-level post-processor, which may leave the space before a word out of the
    word's characters; empty if there is none."""
    kind = processor["type"] if processor else ""
    if processor and kind == "Sequence":
        found = [_trimming(part) for part in processor["processors"]]
        return next((option for option in found if option), {})
    if processor and kind in ("ByteLevel", "RobertaProcessing"):
        return {"trim_offsets": processor["trim_offsets"]}
    return {}


def _dump(content: Record) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _find(folder: Path, name: str) -> Path | None:
    return inside(folder, name) if (folder / name).is_file() else None


def _json(folder: Path, name: str) -> Record:
    """The object in a JSON file; empty if there is no such file."""
    path = _find(folder, name)
    return json_file.read_object(path) if path else {}


def _content(tokenizer: "Tokenizer") -> bytes:
    return tokenizer.to_str().encode()


def _naming(folder: Path, path: Path, content: Callable[[], bytes]) -> Vocabulary:
    """The vocabulary of a tokenizer.json, or of one that is made of `path`, which also states the
    special tokens that the folder's files name; errors name `path`."""
    named = list(_named(folder))
    tokens: dict[str, list[str]] = {}
    for _, _, role, token in named:
        tokens.setdefault(role, []).append(token)
    try:
        with convert_errors("is not one that the tokenizers library reads"):
            vocabulary = Vocabulary(with_specials(content(), tokens))
    except ConfigError as error:
        raise ConfigError(f"vocabulary {path} {error}") from None
    of_role = dict(zip(ROLES, vocabulary.native_specials, strict=True))
    for file, key, role, token in named:
        if token != of_role[role]:
            _warn(f"{folder / file}: {key} is {quoted(token)}", of_role[role])
    return vocabulary


def _named(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    """File, key, role and token of each special token that the folder names, those that count
    first."""
    for role, keys in _KEYS.items():
        for file in (CONFIG, SPECIALS_MAP):
            content = _json(folder, file)
            for key in (f"{key}_token" for key in keys):
                token = content.get(key)
                token = token.get("content") if isinstance(token, dict) else token
                if isinstance(token, str):
                    yield file, key, role, token


def _warn_of_ids(folder: Path, vocabulary: Vocabulary) -> None:
    """Warns of special ids in config.json that are not the tokenizer's: mmBERT's has another
    cls_token_id."""
    config = _json(folder, MODEL_CONFIG)
    specials = zip(vocabulary.native_specials, vocabulary.native_special_ids, strict=True)
    for (token, number), keys in zip(specials, _KEYS.values(), strict=True):
        for key in (f"{key}_token_id" for key in keys):
            if isinstance(other := config.get(key), int) and other != number:
                _warn(f"{folder / MODEL_CONFIG}: {key} is {other}", token, number)


def _warn_of_frame(file: Path, vocabulary: Vocabulary) -> None:
    """Warns of a tokenizer.json that does not put one token before a sentence and one behind it, as
    rows of xlj have them."""
    bos, _, eos, *_ = vocabulary.native_specials
    theirs, ours = frame_of(file.read_bytes()), f"{bos} ... {eos}"
    if theirs != ours:
        print(
            f"warning: {file}: post_processor makes {quoted(theirs)} of a sentence, and xlj "
            f"{quoted(ours)}: vectors differ from those of transformers' tokenizer",
            file=sys.stderr,
        )


def _warn(claim: str, token: str | None, number: int | None = None) -> None:
    its = f"has {quoted(token)}{'' if number is None else f' ({number})'}" if token else "has none"
    print(f"warning: {claim}, but the tokenizer {its}, which is taken", file=sys.stderr)


def _refuse_added(folder: Path, vocabulary: Vocabulary) -> None:
    decoder = _json(folder, CONFIG).get("added_tokens_decoder", {})
    try:
        added = {*_json(folder, ADDED), *(token["content"] for token in decoder.values())}
    except (AttributeError, KeyError, TypeError):
        raise ConfigError(
            f"{folder / CONFIG}: added_tokens_decoder must hold tokens by their ids, each with its "
            "content"
        ) from None
    beyond = sorted(added - {*vocabulary.pieces, *vocabulary.native_specials})
    if beyond:
        raise ConfigError(
            f"{folder}: {len(beyond)} added tokens, such as {quoted(beyond[0])}, are not in the "
            f"vocabulary's file; have transformers write {JSON} "
            "(AutoTokenizer.from_pretrained(folder).save_pretrained(folder)) and leave no other "
            "tokenizer file beside it"
        )


def _ernie_m(vocabulary: Vocabulary, words: Path) -> Vocabulary:
    """SentencePiece with the ids of ERNIE-M's vocab.txt: lines of `piece` or `piece<tab>id`. Where
    they are XLM-R's, as in the released ones, it stays; else it becomes a tokenizer.json."""
    try:
        numbered = [
            (int(written) if tab else number, piece)
            for number, line in enumerate(words.read_text("utf-8").rstrip("\n").split("\n"))
            for piece, tab, written in [line.partition("\t")]
        ]
    except ValueError as error:
        raise ConfigError(
            f"{words}: a line is a piece, or a piece, a tab and its id ({error})"
        ) from None
    numbered.sort()
    for i, (number, _) in enumerate(numbered):
        if number != i:
            raise ConfigError(f"{words}: id {min(i, number)} is missing or there twice")
    pieces = [piece for _, piece in numbered]
    if missing := [name for name in BERT_SPECIALS if name not in pieces]:
        raise ConfigError(f"{words} has no {', '.join(missing)}")
    ours = dict(zip(BERT_SPECIALS, _ROBERTA, strict=True))
    if tuple(ours.get(piece, piece) for piece in pieces) == vocabulary.pieces:
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
    return _framed(tokenizer, BERT_SPECIALS, "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")


def _roberta(words: Path, merges: Path, config: Record) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    ids = json_file.read_object(words)
    for piece, number in ids.items():  # the library takes memory for all ids up to the highest
        if type(number) is not int or not 0 <= number < len(ids):
            raise ConfigError(
                f"gives {quoted(piece)} the id {quoted(number)}; the ids of {len(ids)} pieces must "
                "run from 0 without gaps"
            )
    tokenizer = Tokenizer(models.BPE.from_file(str(words), str(merges), unk_token=None))
    space_first = config.get("add_prefix_space", False)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space_first)
    tokenizer.decoder = decoders.ByteLevel()
    return _framed(tokenizer, _ROBERTA, "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0")


def _framed(tokenizer: "Tokenizer", specials: Sequence[str], pair: str) -> "Tokenizer":
    """With specials that are known as such, and set around a sentence or a pair of them."""
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
