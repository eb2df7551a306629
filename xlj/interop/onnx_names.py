"""Names in exported ONNX graphs: their files, inputs, outputs and metadata. Imports no JAX."""

from collections.abc import Mapping

import numpy as np

WEIGHTS: Mapping[str, type[np.generic]] = {
    "float32": np.float32,
    "int8": np.int8,
    "uint8": np.uint8,
}
"""The types of weights. uint8 has the values of int8 plus 128."""

FILES: Mapping[str, str] = {
    "float32": "onnx/model.onnx",
    "int8": "onnx/model_qint8_avx512_vnni.onnx",
    "uint8": "onnx/model_quantized.onnx",
}
"""The file of a graph in an exported folder, by the type of its weights. fastembed and
transformers.js look for the first, sentence-transformers for the second, transformers.js for the
last."""

METADATA = "xlj"
"""The key of a graph's metadata. Its value is a JSON object, which `onnx_model` reads."""

METADATA_VERSION = 1
"""The value of `version` in the metadata. Raise it if the keys change."""

HIDDEN, VECTOR, LOGITS = "last_hidden_state", "sentence_embedding", "logits"
"""Names of outputs, as in exports of transformers and sentence-transformers."""

PROMPT_LENGTH = "prompt_length"
"""Optional input of graphs whose pooling leaves out the prompt: the number of tokens at the start
of a row that are not pooled, int64 []; 0 by default."""
