"""Makes a smaller model: removes pieces of the vocabulary, and layers (ours)."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlj.checkpoints import stored_models
from xlj.config import ConfigError, Model
from xlj.config.checks import check_model
from xlj.conversion.extending import resize
from xlj.conversion.importing import store
from xlj.data.rows.report import align_columns
from xlj.data.text.cleaning import read_texts
from xlj.data.tokenizer.vocabulary import Vocabulary, measure_fertility
from xlj.families.modern import is_local
from xlj.inference import pretrained
from xlj.inference.pretrained import Pretrained
from xlj.interop import vocabulary_trimming
from xlj.retrieval import embedder
from xlj.retrieval.vector_loss import cosines_of
from xlj.sharding.trees import Params, named_leaves, nested

TEST_EVERY = 10
"""Every tenth line of a text is not counted, so that the changes of new text can be measured."""

_MAX_VECTORS = 100
"""The number of lines of a text whose vectors are compared."""


class Pieces(NamedTuple):
    """The pieces that remain: the arguments of `vocabulary_trimming.trim`."""

    pieces: int | None = None
    coverage: float | None = None
    characters: str = "all"


def trim(
    checkpoint: str,
    output: Path,
    text: Sequence[Path] = (),
    remaining: Pieces | None = None,
    layers: Sequence[int] = (),
) -> None:
    """Writes a checkpoint with fewer pieces, fewer layers or both; prints what changes.

    Args:
      checkpoint: the path of the model (`stored_models.find`).
      output: the path of the new checkpoint.
      text: a file for each language, one sentence per line. Files of the same name are one
        language. Every tenth line measures the changes; the other lines determine the pieces.
      remaining: which pieces remain; None for all.
      layers: the layers that remain, from 0, in order; empty for all.

    Raises:
      ConfigError: if the model does not exist, its vocabulary cannot be trimmed, the text cannot be
        read, or a layer does not exist or cannot be the first.
    """
    texts = read_texts(text)
    source = stored_models.find(checkpoint, "--checkpoint")
    model = select_options(source.model, layers) if layers else source.model
    tests = {name: lines[::TEST_EVERY] for name, lines in texts.items()}
    counted = {
        name: [line for i, line in enumerate(lines) if i % TEST_EVERY] or lines
        for name, lines in texts.items()
    }
    old = source.vocabulary()
    new = vocabulary_trimming.trim(old, counted, *remaining) if remaining else old
    before = pretrained.of(source)
    params = before.params if new is old else resize(before.params, old, new)
    if layers:
        params = select_layers(params, source.model, layers)
    after = before._replace(params=params, model=model, vocabulary=new)
    _print_sizes(before, after, remaining and remaining.pieces)
    if texts:
        _print_changes(before, after, tests)
    store(output, source, params, model, new)


def select_options(model: Model, layers: Sequence[int]) -> Model:
    """Returns the options of a model with some of its layers. Local layers remain local.

    Raises:
      ConfigError: if the layers are not in order, do not exist, or cannot be the first.
    """
    written = ",".join(map(str, layers))
    if list(layers) != sorted(set(layers) & set(range(model.layers))):
        raise ConfigError(
            f"--layers={written}: expected different layers of 0 to {model.layers - 1}, in order"
        )
    if model.norm == "embeddings" and layers[0]:
        raise ConfigError(
            f"--layers={written}: layer 0 must remain, because it is the only layer without a norm "
            "before attention"
        )
    full = [i for i, layer in enumerate(layers) if not is_local(model, layer)]
    if not full:
        raise ConfigError(
            f"--layers={written}: all of these layers are local; keep at least one layer with full "
            "attention"
        )
    periods = range(1, len(layers) + 1)
    every = next((n for n in periods if full == [*range(0, len(layers), n)]), None)
    new = dataclasses.replace(model, layers=len(layers))
    if model.local_attention:
        new = dataclasses.replace(
            new,
            full_attention_every=every or model.full_attention_every,
            full_layers=() if every else tuple(map(str, full)),
        )
    check_model(new)
    return new


def select_layers(params: Params, model: Model, layers: Sequence[int]) -> Params:
    """Returns the parameters of a model with some of its layers.

    Args:
      model: the options of the model with all layers.
      layers: the layers that remain, from 0, in order.
    """

    def select(name: str, leaf: jax.Array) -> jax.Array:
        if not name.startswith("layers/"):
            return leaf
        # In some models the first layer has no norm before attention. The array of this norm then
        # has one row less, and row 0 belongs to layer 1.
        missing = model.layers - leaf.shape[0]
        return leaf[jnp.array([layer - missing for layer in layers if layer >= missing])]

    return nested({name: select(name, leaf) for name, leaf in named_leaves(params).items()})


def _print_sizes(before: Pretrained, after: Pretrained, pieces: int | None) -> None:
    old, new = before.vocabulary, after.vocabulary
    if new is not old:
        letters = len(vocabulary_trimming.one_character(new))
        print(f"{old.native_size:,} -> {new.native_size:,} ids, of which {letters:,} characters")
        if pieces and new.native_size < pieces:
            print(f"fewer than --pieces={pieces}: the text contains no other pieces that fit")
    if after.model != before.model:
        print(f"{before.model.layers} -> {after.model.layers} layers{_describe_pattern(after)}")
    counts = [
        sum(math.prod(leaf.shape) for leaf in named_leaves(each.params).values())
        for each in (before, after)
    ]
    megabytes = " -> ".join(f"{4 * count / 1e6:,.0f}" for count in counts)
    print(f"{counts[0]:,} -> {counts[1]:,} parameters ({megabytes} MB in float32)")


def _describe_pattern(pretrained: Pretrained) -> str:
    model = pretrained.model
    full = [str(i) for i in range(model.layers) if not is_local(model, i)]
    if not model.local_attention:
        return ""
    if model.full_layers:
        return f"; irregular: layers {', '.join(full)} have full attention, all others are local"
    return f"; regular: every {model.full_attention_every}. layer has full attention, from layer 0"


def _print_changes(
    before: Pretrained, after: Pretrained, tests: Mapping[str, Sequence[str]]
) -> None:
    """Prints a table of what changes for lines that did not determine the pieces."""
    some = [line for lines in tests.values() for line in lines[:_MAX_VECTORS]]
    cosines = iter(
        cosines_of(*(embedder.by_modules(each).embed(some)[0] for each in (before, after)))
    )
    head = [
        "lines",
        "pieces per word",
        "% of pieces <unk>",
        "% of lines changed",
        "cosine",
        "least",
    ]
    rows = [["", *head]]
    for name, lines in tests.items():
        then, now = (measure_fertility(each.vocabulary, lines) for each in (before, after))
        changed = sum(_changes(before.vocabulary, after.vocabulary, lines)) / len(lines)
        of_lines = np.array([*itertools.islice(cosines, min(len(lines), _MAX_VECTORS))])
        rows.append(
            [
                name,
                f"{len(lines):,}",
                f"{then.pieces_per_word:.2f} -> {now.pieces_per_word:.2f}",
                f"{100 * then.unknown_share:.2f} -> {100 * now.unknown_share:.2f}",
                f"{100 * changed:.1f}",
                f"{of_lines.mean():.4f}",
                f"{of_lines.min():.4f}",
            ]
        )
    print(
        f"changes in every {TEST_EVERY}th line, which is not counted to choose pieces. Cosine: "
        f"of sentence\nvectors before and after, of the first {_MAX_VECTORS} of these lines"
    )
    print("\n".join(align_columns(rows)))


def measured_lines(lines: Sequence[str]) -> list[str]:
    """Returns the lines of a text whose vectors are compared; the pieces do not depend on them."""
    return list(lines[::TEST_EVERY][:_MAX_VECTORS])


def _changes(old: Vocabulary, new: Vocabulary, lines: Sequence[str]) -> Iterator[bool]:
    """Yields for each line whether its pieces differ."""
    for before, after in zip(old.encode_batch(lines), new.encode_batch(lines), strict=True):
        yield [old.pieces[i] for i in before] != [new.pieces[i] for i in after]
