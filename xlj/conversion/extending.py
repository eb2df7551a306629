"""Adds pieces to a checkpoint's vocabulary, for languages that it splits into too many pieces."""

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import KeyPath

from xlj.checkpoints import stored_models
from xlj.config import ConfigError
from xlj.conversion.importing import store
from xlj.data.text.cleaning import clean
from xlj.data.tokenizer.layout import UNK
from xlj.inference import pretrained
from xlj.interop import matched_rows
from xlj.interop.vocabulary_extension import extend, initial_rows
from xlj.io import files
from xlj.sharding import trees


def extend_checkpoint(
    checkpoint: str, text: Sequence[Path], pieces: int, share: float | None, output: Path
) -> None:
    """Writes the extended checkpoint; prints the pieces per word before and after.

    Args:
      text: files of the new languages, one sentence per line.
      pieces: how many pieces to add.
      share: as in `vocabulary_extension.extend`.

    Raises:
      ConfigError: if the model does not exist, its vocabulary cannot be extended, or a text cannot
        be read or yields too few pieces.
    """
    lines = [line for path in text for line in _lines(path.expanduser())]
    source = stored_models.find(checkpoint, "--checkpoint")
    old = source.vocabulary()
    new = extend(old, lines, pieces, share)
    matches = initial_rows(old, new)
    params, model, *_ = pretrained.of(source)
    if params.pop("surplus", None):
        print("embedding rows without an id are dropped")

    def extended(path: KeyPath, leaf: jax.Array) -> jax.Array:
        name, array = trees.name_of(path), np.asarray(leaf)
        if name.endswith(("embeddings/word", "head/word")):  # a generator may have its own table
            return jnp.asarray(matched_rows.embeddings(array, matches, "sampled", 0.0, seed=0))
        if name.endswith("head/bias"):
            return jnp.asarray(matched_rows.match_bias(array, matches))
        return leaf

    params = jax.tree_util.tree_map_with_path(extended, params)
    words = sum(len(line.split()) for line in lines)
    print(f"{old.size:,} -> {new.size:,} ids")
    for name, vocabulary in (("before", old), ("after", new)):
        ids = vocabulary.encode(lines).ids
        unknown = 100 * np.mean(ids == UNK)
        print(f"{name}: {len(ids) / words:.2f} pieces per word, {unknown:.2f} % <unk>")
    store(output, source, params, model, new)


def _lines(path: Path) -> list[str]:
    """Returns a file's lines, cleaned as for training, without blank lines."""
    lines = [text for line in files.lines(path) if (text := clean(line))]
    if not lines:
        raise ConfigError(f"--text={path}: the file contains no text")
    return lines
