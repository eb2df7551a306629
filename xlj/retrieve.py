"""Finds each sentence's translation among those of another file, and says how often rightly.

    python -m xlj.retrieve --checkpoint=DIR --source=en.txt --target=de.txt [--layers=all]

The files hold a sentence a line, translations of each other line by line (Tatoeba's task). Prints
accuracy@1 in both directions as JSON. docs/retrieve.md tells more.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

from xlj import cli
from xlj.config import ConfigError


def _flags() -> Namespace:
    parser = cli.Parser(__doc__)
    add = parser.add_argument
    add(
        "--checkpoint",
        metavar="DIR",
        required=True,
        help=cli.CHECKPOINT,
    )
    for name in ("--source", "--target"):
        add(
            name,
            metavar="FILE",
            required=True,
            type=Path,
            help="a sentence a line: text, also .gz, .xz or .zst",
        )
    add("--layer", metavar="N", type=int, help="0 is the embeddings; default: two thirds of all")
    add("--layers", choices=("all",), help="accuracy at every layer (XLM-E Figure 3)")
    add(
        "--pooling",
        choices=("mean", "first"),
        default="mean",
        help="mean over the sentence's tokens (the default), or the vector of <s>",
    )
    add(
        "--similarity",
        choices=("cosine", "margin"),
        default="cosine",
        help="cosine (the default), or the ratio margin over the nearest neighbours",
    )
    return parser.parse_args()


def run(flags: Namespace) -> None:
    """Embeds both files, searches, prints."""
    if flags.layers and flags.layer is not None:
        raise ConfigError("--layer and --layers=all exclude each other")
    source, target = _lines(flags.source), _lines(flags.target)
    if len(source) != len(target):
        raise ConfigError(
            f"{flags.source} has {len(source)} lines but {flags.target} has {len(target)}; line i "
            "of one must be the translation of line i of the other"
        )
    from xlj.downstream import pretrained
    from xlj.downstream.retrieval import accuracy
    from xlj.downstream.sentence_vectors import Embedder
    from xlj.models.encoder import middle_layer

    loaded = pretrained.load(flags.checkpoint)
    depth = loaded.model.layers
    layer = middle_layer(depth) if flags.layer is None else flags.layer
    layers = list(range(depth + 1)) if flags.layers else [layer]
    embedder = Embedder(loaded, layers, flags.pooling)
    vectors = embedder.embed(source), embedder.embed(target)
    if embedder.cut:
        print(f"{embedder.cut} sentences lost their end: too long for the model", file=sys.stderr)
    for index, layer in enumerate(layers):
        of_source, of_target = (side[index] for side in vectors)
        found = {
            "layer": layer,
            "source_to_target": accuracy(of_source, of_target, flags.similarity),
            "target_to_source": accuracy(of_target, of_source, flags.similarity),
            "sentences": len(source),
        }
        print(json.dumps(found), flush=True)


def _lines(path: Path) -> list[str]:
    """The lines of a file.

    Raises:
      ConfigError: if it cannot be read, holds no line, or one that is blank or not UTF-8.
    """
    from xlj.data import files

    lines: list[str] = []
    for block in files.blocks(path):
        for line in block:
            if line is None or not line.strip():
                what = "is not UTF-8" if line is None else "is blank"
                raise ConfigError(f"{path}:{len(lines) + 1}: the line {what}")
            lines.append(line.strip())
    if not lines:
        raise ConfigError(f"{path} is empty")
    return lines


if __name__ == "__main__":
    with cli.readable_errors():
        run(_flags())
