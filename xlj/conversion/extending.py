"""Adds pieces to a vocabulary that splits the words of some languages into too many pieces."""

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import KeyPath

from xlj.checkpoints import stored_models
from xlj.checkpoints.stored_models import StoredModel
from xlj.conversion.importing import print_next, store
from xlj.data.text.cleaning import read_lines
from xlj.data.tokenizer.vocabulary import Vocabulary, measure_fertility
from xlj.inference import pretrained
from xlj.interop import vocabulary_matching
from xlj.interop.vocabulary_extension import extend, initial_rows
from xlj.sharding import trees
from xlj.sharding.trees import Params


def extend_checkpoint(
    checkpoint: str, text: Sequence[Path], pieces: int, share: float | None, output: Path
) -> None:
    """Writes a checkpoint with an extended vocabulary; prints the pieces per word before and after.

    Args:
      checkpoint: the path of the model (`stored_models.find`).
      text: files of the new languages, one sentence per line.
      pieces: the number of pieces to add.
      share: the assumed share of new text (`vocabulary_extension.extend`); None for the default.
      output: the path of the new checkpoint.

    Raises:
      ConfigError: if the model does not exist, its vocabulary cannot be extended, or the text
        cannot be read or yields too few pieces.
    """
    lines = [line for path in text for line in read_lines(path.expanduser())]
    source = stored_models.find(checkpoint, "--checkpoint")
    old = source.vocabulary()
    new = extend(old, lines, pieces, share)
    print(f"{old.size:,} -> {new.size:,} ids")
    for name, vocabulary in (("before", old), ("after", new)):
        counts = measure_fertility(vocabulary, lines)
        unknown = 100 * counts.unknown_share
        print(f"{name}: {counts.pieces_per_word:.2f} pieces per word, {unknown:.2f} % <unk>")
    store_extended(source, new, output)
    print_next(output)


def store_extended(source: StoredModel, new: Vocabulary, output: Path) -> None:
    """Writes a checkpoint of the model with an extended vocabulary.

    `vocabulary_extension.initial_rows` determines the initial values of new rows.

    Args:
      new: the extended vocabulary.
      output: the path of the new checkpoint.
    """
    params, model, *_ = pretrained.of(source)
    store(output, source, resize(params, source.vocabulary(), new), model, new)


def resize(params: Params, old: Vocabulary, new: Vocabulary) -> Params:
    """Returns the parameters of a model with another vocabulary.

    `vocabulary_extension.initial_rows` determines the rows of its pieces. The row of an old piece
    is a copy, bit for bit. Rows without an id are not returned, which is printed.
    """
    matches = initial_rows(old, new)
    if "surplus" in params:
        params = {name: part for name, part in params.items() if name != "surplus"}
        print("not written: embedding rows that have no id")

    def resize_leaf(path: KeyPath, leaf: jax.Array) -> jax.Array:
        name, array = trees.name_of(path), np.asarray(leaf)
        if name.endswith(
            ("embeddings/word", "head/word")
        ):  # a generator may have a table of its own
            return jnp.asarray(
                vocabulary_matching.embeddings(array, matches, "sampled", 0.0, seed=0)
            )
        if name.endswith("head/bias"):
            return jnp.asarray(vocabulary_matching.match_bias(array, matches))
        return leaf

    return jax.tree_util.tree_map_with_path(resize_leaf, params)
