"""Runs exported ONNX graphs with onnxruntime, without JAX."""

import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from xlj.config import ConfigError
from xlj.data.tokenizer.layout import PAD
from xlj.data.tokenizer.sentence_tokenizer import SentenceTokenizer
from xlj.interop import sentence_modules, tokenizer_files
from xlj.interop.onnx_graph import DATA_SUFFIX
from xlj.interop.onnx_names import FILES, METADATA, METADATA_VERSION
from xlj.io.json_file import Record
from xlj.io.quoting import shortened

_CPU = Path("/proc/cpuinfo")  # of Linux

BATCH_TOKENS = 1024
"""The maximum number of tokens of a batch, with padding, unless one row is longer. The layers of
such a batch stay in the caches of a processor: with 4,096 tokens, multilingual-e5-small takes 1.5
times as long in int8, and 270 MB more."""


class OnnxModel:
    """A graph that `xlj convert export --format=onnx` wrote.

    Args:
      folder: the exported folder.
      weights: `float32` or `int8`.

    Raises:
      ConfigError: if onnxruntime is not installed, the folder has no such graph, or xlj did not
        write the graph.

    Attributes:
      file: the file of the graph.
      vocabulary: the tokenizer of the folder.
      layers, default_layer, hidden, max_tokens: the sizes of the encoder, as in
        `sentence_embedder.Encoding`.
      sentence: the sentence modules in the graph; None if it has none.
      outputs: the names of the graph's outputs.
    """

    def __init__(self, folder: Path, weights: str = "float32"):
        self.folder, self.file = folder, _find(folder, weights)
        self._session = _open(self.file)
        text = self._session.get_modelmeta().custom_metadata_map.get(METADATA)
        record: Record = json.loads(text or "{}")
        if record.get("version") != METADATA_VERSION:
            raise ConfigError(
                f"{self.file} was not written by this release of xlj; write it with: xlj convert "
                "export --format=onnx"
            )
        self.layers, self.default_layer = record["layers"], record["default_layer"]
        self.hidden, self.max_tokens = record["hidden"], record["max_tokens"]
        self.sentence = sentence_modules.from_record(record["sentence"])
        self.vocabulary = SentenceTokenizer(folder / tokenizer_files.JSON, record["tokenizer"])
        self.outputs = [output.name for output in self._session.get_outputs()]
        self._inputs = [value.name for value in self._session.get_inputs()]

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the tokenizer, the graph, and its external data."""
        return _digest(self.folder, self.file)

    def run(self, output: str, tokens: np.ndarray, **inputs: Any) -> np.ndarray:
        """Computes an output of the graph.

        Args:
          tokens: ids of `vocabulary` with padding, int [rows, length].
          inputs: optional inputs of the graph.
        """
        feed = {
            "input_ids": self.vocabulary.native_ids[tokens],
            "attention_mask": (tokens != PAD).astype(np.int64),
            "token_type_ids": np.zeros(tokens.shape, np.int64),
        }
        result: np.ndarray
        arrays = {name: feed[name] for name in self._inputs}
        arrays |= {name: np.asarray(value) for name, value in inputs.items()}
        (result,) = self._session.run([output], arrays)
        return result


def digest(folder: Path, weights: str) -> str:
    """Returns `OnnxModel.digest` of a folder without loading the graph.

    Raises:
      ConfigError: if a file is missing or cannot be read.
    """
    return _digest(folder, _find(folder, weights))


def _digest(folder: Path, graph: Path) -> str:
    data = graph.with_name(graph.name + DATA_SUFFIX)
    total = hashlib.sha256()
    for file in (folder / tokenizer_files.JSON, graph, *[data] * data.is_file()):
        try:
            with file.open("rb") as opened:
                total.update(hashlib.file_digest(opened, "sha256").digest())
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from None
    return total.hexdigest()


def batches_of(lengths: np.ndarray, max_rows: int | None) -> Iterator[tuple[np.ndarray, int]]:
    """Groups rows of similar length into batches, longest first.

    Unlike `row_batches.buckets`, batches may have any shape, because a graph is not compiled.

    Args:
      lengths: the number of tokens of each row, int [rows].
      max_rows: the maximum number of rows of a batch; None for no limit.

    Yields:
      (indices of rows, the length of the longest).
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        longest = int(lengths[order[start]])
        rows = max(1, min(BATCH_TOKENS // longest, max_rows or BATCH_TOKENS))
        yield order[start : start + rows], longest
        start += rows


def _find(folder: Path, weights: str) -> Path:
    """Returns the file of the graph.

    int8 weights need the instructions VNNI, without which processors of x86 may overflow; then the
    file with uint8 weights is used.
    """
    kind = "uint8" if weights == "int8" and not _has_exact_int8() else weights
    file = folder / FILES[kind]
    if not file.is_file():
        more = " --int8" if weights == "int8" else ""
        raise ConfigError(
            f"{folder} has no {FILES[kind]}; write it with: xlj convert export --format=onnx{more}"
        )
    return file


def _has_exact_int8() -> bool:
    lines = _CPU.read_text("utf-8", "replace").split("\n") if _CPU.exists() else []
    flags = next((line for line in lines if line.startswith("flags")), None)
    return flags is None or bool({"avx512_vnni", "avx_vnni"} & {*flags.split()})


def _open(file: Path) -> Any:
    """Opens a session of onnxruntime."""
    try:
        import onnxruntime
    except ImportError:
        raise ConfigError(
            "--backend=onnx needs the library onnxruntime; install it with: "
            "pip install -e '.[onnx]'"
        ) from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    options.enable_mem_pattern = False  # it keeps memory for each shape of a batch
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no public type
        raise ConfigError(f"{file} is damaged: {shortened(str(error))}") from None
