"""Creates small valid input files for readers of binary, tokenizer and model files."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path

import numpy as np
from fuzz_readers import TEXT, files_of

from xlj.data.labelled.features import Features
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.finetuning import task_data


def make() -> dict[str, dict[str, bytes]]:
    """Returns {kind: {file name: content}} for all kinds that `fuzz_readers.every` needs."""
    model = _sentencepiece()
    kinds = {
        "sentencepiece": {"a.model": model},
        "parquet": {"a.parquet": _parquet()},
        **_tokenizers(),
    }
    pieces = Vocabulary(model).pieces
    ids = "".join(f"{piece}\t{i}\n" for i, piece in enumerate(_with_bert_names(pieces)))
    kinds["ernie_m"] = {"sentencepiece.bpe.model": model, "vocab.txt": ids.encode()}
    kinds |= _weights()
    kinds["rows"] = _rows(model)
    kinds["checkpoint"] = _checkpoint(Vocabulary(model))
    return kinds


def _sentencepiece() -> bytes:
    import sentencepiece

    output = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.split("\n") * 5),
        model_writer=output,
        vocab_size=60,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        minloglevel=2,
    )
    return output.getvalue()


def _with_bert_names(pieces: tuple[str, ...]) -> list[str]:
    names = {
        "<s>": "[CLS]",
        "<pad>": "[PAD]",
        "</s>": "[SEP]",
        "<unk>": "[UNK]",
        "<mask>": "[MASK]",
    }
    return [names.get(piece, piece) for piece in pieces]


def _parquet() -> bytes:
    import pyarrow
    import pyarrow.parquet

    output = io.BytesIO()
    table = pyarrow.table(
        {"text": [*TEXT.split("\n"), None], "n": list(range(len(TEXT.split("\n")) + 1))}
    )
    pyarrow.parquet.write_table(table, output, row_group_size=4)
    return output.getvalue()


def _tokenizers() -> dict[str, dict[str, bytes]]:
    from tokenizers import ByteLevelBPETokenizer, SentencePieceUnigramTokenizer, implementations

    lines, names = TEXT.split("\n"), ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    word = implementations.BertWordPieceTokenizer()
    word.train_from_iterator(lines, vocab_size=80)
    byte = ByteLevelBPETokenizer()
    byte.train_from_iterator(lines, vocab_size=280, special_tokens=names)
    unigram = SentencePieceUnigramTokenizer()
    unigram.train_from_iterator(lines, vocab_size=60, special_tokens=names, unk_token="<unk>")
    kinds = {
        f"json {name}": {"tokenizer.json": tokenizer.to_str().encode()}
        for name, tokenizer in (("WordPiece", word), ("bytes", byte), ("Unigram", unigram))
    }
    with tempfile.TemporaryDirectory() as folder:
        word.save_model(folder)
        settings = {"do_lower_case": True, "tokenize_chinese_chars": True, "strip_accents": None}
        kinds["bert"] = files_of(Path(folder)) | {
            "tokenizer_config.json": json.dumps(settings).encode(),
            "added_tokens.json": b"{}",
        }
    with tempfile.TemporaryDirectory() as folder:
        byte.save_model(folder)
        kinds["roberta"] = files_of(Path(folder)) | {
            "tokenizer_config.json": b'{"add_prefix_space": false}'
        }
    return kinds


def _weights() -> dict[str, dict[str, bytes]]:
    from safetensors.numpy import save

    draw = np.random.default_rng(0)
    tensors = {
        "a.weight": draw.normal(size=(4, 3)).astype(np.float32),
        "b.bias": draw.normal(size=3).astype(np.float16),
        "empty": np.zeros((0, 2), np.float32),
    }
    config = json.dumps({"model_type": "xlm-roberta", "vocab_size": 60}).encode()
    names = {name: f"model-{i}.safetensors" for i, name in enumerate(tensors)}
    shards = {file: save({name: tensors[name]}) for name, file in names.items()}
    index = json.dumps({"metadata": {}, "weight_map": names}).encode()
    return {
        "weights": {"config.json": config, "model.safetensors": save(tensors)},
        "shards": {"config.json": config, "model.safetensors.index.json": index, **shards},
    }


def _rows(model: bytes) -> dict[str, bytes]:
    """Creates a row store of one task whose folder is inside the store."""
    tokens = np.random.default_rng(0).integers(4, 40, (5, 8))
    rows = {"en": Features(tokens, {"labels": np.zeros((5, 1), np.int32)}, {})}
    with tempfile.TemporaryDirectory() as cache:
        store = task_data.write_rows(Path(cache), "classification", rows, Vocabulary(model))
        return files_of(store.path)


def _checkpoint(vocabulary: Vocabulary) -> dict[str, bytes]:
    """Creates a checkpoint of the parameters of one small layer."""
    import jax

    from xlj import config as schema
    from xlj.checkpoints import writing
    from xlj.models import encoder

    config = schema.default()
    config.data.languages, config.data.mono, config.data.length = "en", "phrasebook:{language}", 16
    config.model.layers, config.model.hidden, config.model.heads = 1, 8, 2
    config.model.intermediate, config.model.positions = 8, 20
    config.objectives.mmlm.batch_size, config.objectives.tlm.batch_size = 8, 0
    parsed = schema.parse(config)
    params = encoder.init(jax.random.key(0), parsed.model, vocabulary.size, 1)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "made"
        writing.write_params(checkpoint, params, parsed, vocabulary, ["en"])
        return files_of(checkpoint)
