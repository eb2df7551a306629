"""The flags of commands that make sentence vectors, and the vectors that they ask for."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xlj.cli.parser import Parser
from xlj.config import ConfigError
from xlj.config.choices import POOLINGS

if TYPE_CHECKING:  # types only: commands parse their flags without JAX
    import numpy as np

    from xlj.io.file_ranges import FileRange
    from xlj.io.malformed import Skipping
    from xlj.io.parts import Parts
    from xlj.retrieval.embedder import Embedder


def add_flags(parser: Parser) -> None:
    """Adds --checkpoint, --layer, --pooling and --prompt."""
    parser.add_checkpoint()
    parser.add_layer("pool")
    parser.add_argument(
        "--pooling",
        choices=POOLINGS,
        help="mean: over all tokens, <s> and </s> too, as XTREME and sentence-transformers do (the "
        "default). text: over the text's own tokens. first: the vector of <s>. A folder of "
        "sentence-transformers makes its vectors by its modules, unless --layer or --pooling is "
        "given",
    )
    parser.add_argument(
        "--prompt",
        metavar="NAME",
        help="of a folder of sentence-transformers: the prompt to put before each sentence [the "
        "folder's default]",
    )


def add_pair_flags(parser: Parser, lines: str) -> None:
    """Adds --source and --target, which have such lines, and --centred, beside those of
    `add_flags`."""
    add_flags(parser)
    for name in ("--source", "--target"):
        parser.add_file(name, f"{lines}: text, also compressed", required=True)
    parser.add_argument(
        "--centred",
        action="store_true",
        help="take the mean vector of each text off its sentences, so that what all of a language "
        "have in common counts for nothing",
    )


def check_centred(flags: Namespace, path: Path, sentences: Sequence[str]) -> None:
    """Refuses --centred where the mean would be the sentence itself."""
    if flags.centred and len(set(sentences)) < 2:
        raise ConfigError(
            f"{path} has one sentence; --centred needs many to know what they have in common"
        )


def embed(flags: Namespace, made: "Embedder", *texts: Sequence[str]) -> list["np.ndarray"]:
    """Vectors of each text by an `Embedder`, centred if --centred says so."""
    from xlj.retrieval.nearest import centre

    vectors = [made.embed(sentences) for sentences in texts]
    if flags.centred:
        for side in vectors:
            centre(side)
    return vectors


def embedder(flags: Namespace, all_layers: bool = False) -> "Embedder":
    """The `Embedder` of --checkpoint, pooled as the flags say, at one layer or at all; raises a
    `ConfigError` if there is no such model or layer."""
    from xlj.api.encoder import load

    encoder = load(flags.checkpoint)
    layers = range(encoder.layers + 1) if all_layers else ()
    chosen = layers or (() if flags.layer is None else [flags.layer])
    return encoder.embedder(chosen, flags.pooling, prompt=flags.prompt)


def embed_parts(
    flags: Namespace,
    parts: "Parts",
    units: "Sequence[FileRange]",
    dtype: str,
    skipping: "Skipping | None" = None,
    has_ids: bool = False,
) -> None:
    """Embeds the lines of a stretch into each part of this shard that is not there yet.

    Args:
      dtype: one of `choices.VECTOR_TYPES`.
      skipping: what becomes of malformed lines; None: they are errors.
      has_ids: whether lines may be `id TAB sentence`, of which the sentence is embedded; blank
        lines are then passed over.
    """
    left = parts.remaining()
    if not left:
        return
    from tqdm import tqdm

    from xlj.retrieval import vector_file

    def text(line: str) -> str:
        return (line.rpartition("\t")[2] if has_ids else line).strip()

    made = embedder(flags)
    with tqdm(desc="embedding", unit=" sentences", disable=None) as bar:
        for part in left:
            rows = 0
            with vector_file.writing(parts.file(part), made.width, dtype, skipping) as append:
                lines = units[part].lines(skipping)
                if has_ids:
                    lines = filter(str.strip, lines)
                for vectors in made.stream(map(text, lines), bar.update):
                    append(vectors[0])
                    rows += vectors.shape[1]
            parts.mark_complete(part, **units[part].as_json(), rows=rows)
    report_cut(made)


def report_cut(made: "Embedder") -> None:
    """Says how many sentences of an `Embedder` lost their end."""
    if made.truncated:
        print(f"{made.truncated} sentences lost their end: too long for the model", file=sys.stderr)
