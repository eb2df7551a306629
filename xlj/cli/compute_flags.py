"""Flags that choose what computes an encoder, and in which type of numbers; and the loaded encoder
of these flags."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xlj.cli.parser import Parser
from xlj.config import ConfigError
from xlj.config.choices import BACKENDS, COMPUTE_TYPES

if TYPE_CHECKING:  # types only: commands parse their flags without JAX
    from xlj.api.encoder import Encoder
    from xlj.api.onnx_encoder import OnnxEncoder


def add(parser: Parser, has_backends: bool = True) -> None:
    """Adds --compute and --text, and --backend if `has_backends`."""
    add = parser.add_argument
    if has_backends:
        add(
            "--backend",
            choices=tuple(BACKENDS),
            default="jax",
            help="what computes the vectors. onnx, onnx-int8: onnxruntime on CPUs, with the graph "
            "of a folder of xlj convert export --format=onnx, or with its int8 weights [jax]",
        )
    add(
        "--compute",
        choices=COMPUTE_TYPES,
        help="type of matrix products. bfloat16 is faster on GPUs, TPUs and newer CPUs "
        "(AVX512-BF16, AMX), and loses a little accuracy [the type in the model's config]",
    )
    add(
        "--text",
        metavar="FILE",
        nargs="+",
        type=Path,
        default=[],
        help="with --compute=bfloat16: text files, one for each language, one sentence per line. "
        "The command prints the cosines of the vectors of their first 1,000 lines in bfloat16 and "
        "float32",
    )


def load_encoder(
    flags: Namespace, layers: Sequence[int] = (), pooling: str | None = None
) -> "Encoder":
    """Loads the encoder of --checkpoint with JAX, and prints the loss of bfloat16 on --text.

    Args:
      layers, pooling: of the vectors whose loss is printed (`Embedder`).

    Raises:
      ConfigError: if there is no such model, or flags contradict each other.
    """
    if flags.text and flags.compute != "bfloat16":
        raise ConfigError("--text measures what bfloat16 changes; set --compute=bfloat16 too")
    from xlj.api import loading
    from xlj.data.text.cleaning import read_texts

    texts = read_texts(flags.text)
    encoder = loading.load(flags.checkpoint, compute=flags.compute)
    if texts:
        from xlj.retrieval.vector_loss import measure

        exact = encoder.in_type("float32").embedder(layers, pooling)
        loss = measure(exact, encoder.embedder(layers, pooling), texts)
        print(f"vectors in bfloat16, compared with float32:\n{loss.as_text()}", file=sys.stderr)
        flags.text = []  # printed once, also by a command that loads the model again
    return encoder


def load_sentence_encoder(
    flags: Namespace, layers: Sequence[int] = (), pooling: str | None = None
) -> "Encoder | OnnxEncoder":
    """Loads the encoder of --checkpoint with --backend; see `load_encoder`."""
    if flags.backend == "jax":
        return load_encoder(flags, layers, pooling)
    for name in ("compute", "text"):
        if getattr(flags, name):
            raise ConfigError(f"--{name} needs --backend=jax; remove --{name}")
    from xlj.api import loading

    return loading.load(flags.checkpoint, backend=flags.backend)
