"""Loads encoders. JAX is imported only if it computes."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from xlj.config import ConfigError
from xlj.config.choices import BACKENDS
from xlj.config.fields import check_choice
from xlj.config.paths import local_path

if TYPE_CHECKING:
    from xlj.api.encoder import Encoder
    from xlj.api.onnx_encoder import OnnxEncoder


@overload
def load(
    path: str | Path, device: str | None = None, backend: Literal["jax"] = "jax"
) -> "Encoder": ...


@overload
def load(
    path: str | Path, device: str | None = None, *, backend: str
) -> "Encoder | OnnxEncoder": ...


def load(
    path: str | Path, device: str | None = None, backend: str = "jax"
) -> "Encoder | OnnxEncoder":
    """Loads an encoder and verifies its files.

    Args:
      path: a workdir (its latest checkpoint, or for a finished fine-tuning run the scored
        checkpoint), a checkpoint folder, or a Hugging Face folder. With the backends `onnx` and
        `onnx-int8`, a folder of `xlj convert export --format=onnx`.
      device: the device to compute on, such as `cpu`, `gpu` or `cuda:1`; None for the first device.
      backend: what computes: one of `choices.BACKENDS`. The backends `onnx` and `onnx-int8` return
        an `OnnxEncoder`, and import no JAX.

    Raises:
      ConfigError: if there is no such model, device or backend, or the model is damaged.
    """
    check_choice("backend", backend, BACKENDS)
    if backend == "jax":
        from xlj.api.encoder import load_encoder

        return load_encoder(path, device)
    if device not in (None, "cpu"):
        raise ConfigError(f"device={device!r}: the backend {backend} computes on the CPU only")
    from xlj.api.onnx_encoder import OnnxEncoder

    return OnnxEncoder(local_path("checkpoint", path), BACKENDS[backend])
