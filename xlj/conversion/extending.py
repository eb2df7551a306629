"""A checkpoint with more pieces in its vocabulary, for languages that it cuts to bits."""

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
    """Writes the checkpoint, and tells how many pieces a word has before and after. `text` names
    files of the new languages, a sentence a line; `vocabulary_extension.extend` takes the rest.

    Raises:
      ConfigError: if there is no such model, its vocabulary cannot be extended, or a text cannot be
        read or yields fewer pieces.
    """
    lines = [line for path in text for line in _lines(path.expanduser())]
    source = stored_models.find(checkpoint, "--checkpoint")
    old = source.vocabulary()
    new = extend(old, lines, pieces, share)
    matches = initial_rows(old, new)
    params, model, *_ = pretrained.of(source)
    if params.pop("surplus", None):
        print("rows of embeddings that belong to no id are left out")

    def extended(path: KeyPath, leaf: jax.Array) -> jax.Array:
        name, array = trees.name_of(path), np.asarray(leaf)
        if name.endswith(("embeddings/word", "head/word")):  # a generator may have its own
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
        print(f"{name}: {len(ids) / words:.2f} pieces a word, {unknown:.2f} % <unk>")
    store(output, source, params, model, new)


def _lines(path: Path) -> list[str]:
    """The lines of a file as training reads them, blank ones left out."""
    lines = [text for line in files.lines(path) if (text := clean(line))]
    if not lines:
        raise ConfigError(f"--text={path} holds no text")
    return lines
