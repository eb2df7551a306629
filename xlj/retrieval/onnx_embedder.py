"""Computes sentence vectors with an exported ONNX graph, without JAX."""

from collections.abc import Iterator, Sequence

import numpy as np

from xlj.config import ConfigError
from xlj.data.tokenizer.layout import Ragged
from xlj.inference.onnx_model import OnnxModel, batches_of
from xlj.interop.onnx_names import HIDDEN, PROMPT_LENGTH, VECTOR
from xlj.retrieval.pooling import pool
from xlj.retrieval.sentence_embedder import Encoding, SentenceEmbedder, fill_rows


class OnnxEmbedder(SentenceEmbedder):
    """Embeds sentences with onnxruntime.

    Args:
      model: the graph of an encoder without a head.
      batch_size: the maximum number of sentences in a batch; None for a number that suits CPUs.
      layers, pooling, prompt, prompt_text, truncate_dim: the arguments of `SentenceEmbedder`. A
        graph has the last layer only.

    Raises:
      ConfigError: if the graph has no such vectors, and for the reasons of `SentenceEmbedder`.
    """

    def __init__(
        self,
        model: OnnxModel,
        layers: Sequence[int] = (),
        pooling: str | None = None,
        batch_size: int | None = None,
        prompt: str | None = None,
        prompt_text: str | None = None,
        truncate_dim: int | None = None,
    ):
        if HIDDEN not in model.outputs:
            raise ConfigError(
                f"{model.file} computes {' and '.join(model.outputs)}, not vectors; export the "
                "model with --pooling"
            )
        encoding = Encoding(
            model.vocabulary,
            model.layers,
            model.default_layer,
            model.hidden,
            model.max_tokens,
            model.sentence,
        )
        super().__init__(encoding, layers, pooling, prompt, prompt_text, truncate_dim)
        if self.layers != (model.layers,):
            raise ConfigError(
                f"{model.file} has the vectors of layer {model.layers} only; set "
                f"--layer={model.layers}, or export the model with --layer and --pooling"
            )
        settings = model.sentence.settings if model.sentence else {}
        cut = settings.get("truncate_dim") or self.width
        if self.uses_modules and self.width > cut:
            raise ConfigError(
                f"{model.file} computes vectors of {cut} dimensions (truncate_dim of the exported "
                f"model), not of {self.width}"
            )
        self._model, self._batch_size = model, batch_size

    def batches(
        self, encoded: Ragged, lengths: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields (indices of sentences, vectors [1, rows, width]) of batches."""
        more = {PROMPT_LENGTH: np.int64(self.not_pooled)} if self.not_pooled else {}
        for members, length in batches_of(lengths + 2, self._batch_size):
            tokens = fill_rows(encoded, lengths, members, (len(members), length))
            if self.uses_modules:
                vectors = self._model.run(VECTOR, tokens, **more)
            else:
                vectors = pool(np, self._model.run(HIDDEN, tokens), tokens, self.modes)
            yield members, vectors[None]
