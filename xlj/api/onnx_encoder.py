"""An exported ONNX graph as an encoder of sentences, without JAX."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlj.api import mteb_model
from xlj.api.sentence_encoder import SentenceEncoder
from xlj.config import ConfigError
from xlj.inference.onnx_model import OnnxModel
from xlj.interop.sentence_modules import SentenceModules
from xlj.retrieval.onnx_embedder import OnnxEmbedder


class OnnxEncoder(SentenceEncoder):
    """An encoder that onnxruntime computes on CPUs (`load` with `backend="onnx"`).

    It has the methods of `Encoder` that need sentence vectors only. Its only layer is the last one.

    Args:
      folder: a folder of `xlj convert export --format=onnx`.
      weights: `float32` or `int8`.

    Raises:
      ConfigError: for the reasons of `OnnxModel`.
    """

    def __init__(self, folder: Path, weights: str = "float32"):
        self.model, self.source = OnnxModel(folder, weights), str(folder)

    def __repr__(self) -> str:
        model = self.model
        return (
            f"<xlj.OnnxEncoder of {model.file}: {model.layers} layers of {model.hidden}, "
            f"{model.vocabulary.size:,} pieces, up to {model.max_tokens} tokens>"
        )

    @property
    def layers(self) -> int:
        """The number of layers."""
        return self.model.layers

    @property
    def device(self) -> str:
        """Always `cpu:0`."""
        return "cpu:0"

    @property
    def sentence_modules(self) -> SentenceModules | None:
        """The sentence modules of the graph; None if it has none."""
        return self.model.sentence

    @property
    def digest(self) -> str:
        """The SHA-256 of the tokenizer, the graph, and its external data."""
        return self.model.digest

    @property
    def mteb_model_meta(self) -> Any:
        """The `ModelMeta` that mteb asks of a model. mteb must be installed: `.[mteb]`."""
        width = self.embedder().width
        return mteb_model.metadata(
            self.model.sentence,
            self.source,
            self.digest,
            width,
            None,
            self.model.max_tokens,
            "ONNX",
        )

    def embedder(
        self,
        layers: Sequence[int] = (),
        pooling: str | None = None,
        batch_size: int | None = None,
        prompt: str | None = None,
        prompt_text: str | None = None,
        truncate_dim: int | None = None,
    ) -> OnnxEmbedder:
        """Returns the `OnnxEmbedder` that `embed` uses."""
        return OnnxEmbedder(
            self.model, layers, pooling, batch_size, prompt, prompt_text, truncate_dim
        )

    def _check_device(self, device: Any) -> None:
        """Refuses other devices than the CPU."""
        if device is not None and str(device) not in ("cpu", "cpu:0"):
            raise ConfigError(f"device={str(device)!r}: the ONNX backend computes on the CPU only")
