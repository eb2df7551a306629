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
    path: str | Path,
    device: str | None = None,
    backend: Literal["jax"] = "jax",
    compute: str | None = None,
) -> "Encoder": ...


@overload
def load(
    path: str | Path, device: str | None = None, *, backend: str, compute: str | None = None
) -> "Encoder | OnnxEncoder": ...


def load(
    path: str | Path,
    device: str | None = None,
    backend: str = "jax",
    compute: str | None = None,
) -> "Encoder | OnnxEncoder":
    """Loads an encoder and verifies its files.

    Args:
      path: a workdir (its latest checkpoint, or for a finished fine-tuning run the scored
        checkpoint), a checkpoint folder, or a Hugging Face folder. With the backends `onnx` and
        `onnx-int8`, a folder of `xlj convert export --format=onnx`.
      device: the device to compute on, such as `cpu`, `gpu` or `cuda:1`; None for the first device.
      backend: what computes: one of `choices.BACKENDS`. The backends `onnx` and `onnx-int8` return
        an `OnnxEncoder`, and import no JAX.
      compute: the type of matrix products, `float32` or `bfloat16`; None for the type in the
        model's config. With the backends `onnx` and `onnx-int8`, the graph determines the type.

    Raises:
      ConfigError: if there is no such model, device or backend, or the model is damaged.
    """
    check_choice("backend", backend, BACKENDS)
    if backend == "jax":
        from xlj.api.encoder import load_encoder

        return load_encoder(path, device, compute)
    if device not in (None, "cpu"):
        raise ConfigError(f"device={device!r}: the backend {backend} computes on the CPU only")
    if compute:
        raise ConfigError(
            f"compute={compute!r}: the graph of the backend {backend} has its own type"
        )
    from xlj.api.onnx_encoder import OnnxEncoder

    return OnnxEncoder(local_path("checkpoint", path), BACKENDS[backend])
