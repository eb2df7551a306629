"""Flags of commands that compute sentence vectors, and the computation of the vectors."""

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xlj.cli import compute_flags
from xlj.cli.parser import Parser, at_least
from xlj.config import ConfigError
from xlj.config.choices import POOLINGS, SEARCHES

if TYPE_CHECKING:  # types only: commands parse their flags without JAX
    import numpy as np

    from xlj.io.columns import Layout
    from xlj.io.file_ranges import FileRange
    from xlj.io.malformed import Skipping
    from xlj.io.part_files import PartFiles
    from xlj.retrieval.sentence_embedder import SentenceEmbedder


def add_flags(parser: Parser, has_roles: bool = False, has_compute: bool = True) -> None:
    """Adds --checkpoint, --layer, --pooling, and --prompt or, for queries and documents, a flag for
    the prompt of each role; and the flags of `compute_flags` if `has_compute`."""
    parser.add_checkpoint()
    parser.add_layer("pool")
    parser.add_argument(
        "--pooling",
        choices=POOLINGS,
        help="mean: the mean of all tokens including <s> and </s>, as in XTREME and "
        "sentence-transformers. text: the mean of the text's tokens only. first: the vector of "
        "<s> [mean; for a sentence-transformers folder without --layer, the modules of the folder]",
    )
    if has_compute:
        compute_flags.add(parser)
    for role, names in (("query", "query"), ("document", "document, passage or corpus")):
        if has_roles:
            parser.add_argument(
                f"--{role}_prompt",
                metavar="TEXT",
                help=f"text to put before each {role}, such as '{role}: ' [the prompt of a "
                f"sentence-transformers folder that is named {names}]",
            )
    if has_roles:
        return
    parser.add_argument(
        "--prompt",
        metavar="NAME",
        help="for a sentence-transformers folder: name of the prompt to put before each sentence "
        "[the default prompt of the folder]",
    )


def add_columns(parser: Parser, files: str, more: str = "") -> None:
    """Adds --columns for `files` with one sentence per line; `more` ends its help."""
    parser.add_columns(
        f"column of {files} that contains the sentences, a one-based number or a name in the first "
        f"line{more} [the only column of text, if the other columns are ids, numbers or codes]"
    )


def add_pair_flags(parser: Parser, lines: str, more: str = "", required: bool = True) -> None:
    """Adds --source, --target, --columns and --centred, and the flags of `add_flags`.

    Args:
      lines: describes the lines of a file for --help, for example "one sentence per line".
      more: the end of the help of --columns.
      required: whether --source and --target are required.
    """
    add_flags(parser)
    for name in ("--source", "--target"):
        parser.add_file(name, f"text file with {lines}; may be compressed", required=required)
    add_columns(parser, "both files", more)
    parser.add_argument(
        "--centred",
        action="store_true",
        help="subtract the mean vector of each file from the vectors of the file, which removes "
        "what all sentences of a language have in common",
    )


def add_drop_copies(parser: Parser) -> None:
    """Adds --drop_copies."""
    parser.add_argument(
        "--drop_copies",
        action="store_true",
        help="leave out pairs whose two sides are the same, which are no translations; case and "
        "spaces do not matter",
    )


def report_copies(flags: Namespace, copies: int) -> None:
    """Prints the number of pairs whose sides are the same, if there are any."""
    if copies:
        done = "left out" if flags.drop_copies else "--drop_copies leaves them out"
        print(
            f"pairs whose sides are the same, so no translations: {copies:,} ({done})",
            file=sys.stderr,
        )


def check_centred(flags: Namespace, path: Path, sentences: Sequence[str]) -> None:
    """Refuses --centred for a file with one distinct sentence, whose centred vector is 0."""
    if flags.centred and len(set(sentences)) < 2:
        raise ConfigError(
            f"{path} has only one distinct sentence; --centred needs several to compute a mean"
        )


def add_search_flags(parser: Parser, recall: str) -> None:
    """Adds --search, --index and --probes.

    Args:
      recall: what --search=faiss does, for --help.
    """
    add = parser.add_argument
    add(
        "--search",
        choices=SEARCHES,
        default="exact",
        help=f"exact: compute every cosine. faiss: {recall} [exact]",
    )
    add(
        "--index",
        help="FAISS index, in the syntax of FAISS' index_factory [IVFn,SQfp16 with about n = 4 "
        "sqrt(sentences) lists; Flat for few sentences]",
    )
    add(
        "--probes",
        metavar="N",
        type=at_least(1),
        default=32,
        help="number of FAISS lists to search for each sentence [32]",
    )


def check_search(flags: Namespace) -> None:
    """Raises a `ConfigError` if --index is set without --search=faiss."""
    if flags.index and flags.search != "faiss":
        raise ConfigError("--index needs --search=faiss")


def embed(
    flags: Namespace, embedder: "SentenceEmbedder", *texts: Sequence[str]
) -> list["np.ndarray"]:
    """Computes the vectors of each text, centred if --centred is set."""
    from xlj.retrieval.search import centre

    vectors = [embedder.embed(sentences) for sentences in texts]
    if flags.centred:
        for side in vectors:
            centre(side)
    return vectors


def load_embedder(flags: Namespace, all_layers: bool = False) -> "SentenceEmbedder":
    """Loads the `Embedder` of --checkpoint with the pooling of the flags, for one layer or all.

    Raises:
      ConfigError: if there is no such model or layer.
    """
    selected: Sequence[int] = () if flags.layer is None else [flags.layer]
    encoder = compute_flags.load_sentence_encoder(flags, selected, flags.pooling)
    if all_layers:
        selected = range(encoder.layers + 1)
    return encoder.embedder(selected, flags.pooling, prompt=flags.prompt)


def load_role_embedders(flags: Namespace) -> tuple["SentenceEmbedder", "SentenceEmbedder"]:
    """Loads the model of --checkpoint; returns its `Embedder`s of queries and of documents.

    Raises:
      ConfigError: if there is no such model or layer, or --dimensions is too large.
    """
    layers = () if flags.layer is None else (flags.layer,)
    encoder = compute_flags.load_sentence_encoder(flags, layers, flags.pooling)
    modules = encoder.sentence_modules
    if modules and modules.similarity != "cosine":
        line = f"the model was trained for the similarity {modules.similarity}; xlj uses cosines"
        print(line, file=sys.stderr)
    queries, documents = (
        encoder.role_embedder(role, prefix, layers, flags.pooling, flags.dimensions)
        for role, prefix in (("query", flags.query_prompt), ("document", flags.document_prompt))
    )
    return queries, documents


def embed_parts(
    flags: Namespace,
    part_files: "PartFiles",
    units: "Sequence[FileRange]",
    layouts: "Mapping[Path, Layout]",
    dtype: str,
    skipping: "Skipping | None" = None,
    skips_blank: bool = False,
) -> None:
    """Embeds the lines of each missing part of this shard.

    Args:
      units: the lines of each part.
      layouts: the layout of each file.
      dtype: one of `choices.VECTOR_TYPES`.
      skipping: handles malformed lines; if None, they are errors.
      skips_blank: whether blank lines are skipped.
    """
    missing = part_files.remaining()
    if not missing:
        return
    from tqdm import tqdm

    from xlj.io.columns import own_text
    from xlj.retrieval import sentence_files

    embedder = load_embedder(flags)
    with tqdm(desc="embedding", unit=" sentences", disable=None) as bar:
        for part in missing:
            rows = 0
            with sentence_files.writing_vectors(
                part_files.file(part), embedder.width, dtype, skipping
            ) as append:
                lines = map(own_text, units[part].lines(skipping, layouts[units[part].path]))
                texts = filter(None, lines) if skips_blank else lines
                for vectors in embedder.stream(texts, bar.update):
                    append(vectors[0])
                    rows += vectors.shape[1]
            part_files.mark_complete(part, **units[part].as_json(), rows=rows)
    report_truncated(embedder)


def report_truncated(embedder: "SentenceEmbedder") -> None:
    """Prints how many sentences an `Embedder` truncated."""
    if embedder.truncated:
        line = "sentences truncated because they are too long for the model"
        print(f"{line}: {embedder.truncated:,}", file=sys.stderr)
