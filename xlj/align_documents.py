r"""Aligns the sentences of two documents that are translations, and writes sentence pairs.

    python -m xlj.align_documents --checkpoint=DIR --source=book.en.txt --target=book.de.txt \
        --output=pairs.tsv

A document has one sentence per line or, with --paragraphs, one paragraph. A pair has one to four
sentences of each side; other sentences have no counterpart. The command prints a report. --ladder
writes the line numbers of the pairs, and --html a page to read both sides. --shard=I/N divides
lists of documents among hosts. More: docs/align_documents.md
"""

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlj.cli import command, outputs, sentence_vectors
from xlj.cli.parser import Parser
from xlj.config import ConfigError
from xlj.config.choices import JOINS, PAIR_FORMATS
from xlj.io.malformed import Skipping

if TYPE_CHECKING:  # types only: a command reads its flags without JAX
    from xlj.document_alignment.blocks import Blocks
    from xlj.document_alignment.documents import Document
    from xlj.document_alignment.pair_formats import Aligned, Writer
    from xlj.retrieval.sentence_embedder import SentenceEmbedder


def _add_flags(parser: Parser) -> None:
    add = parser.add_argument
    sentence_vectors.add_flags(parser)
    for name in ("--source", "--target"):
        parser.add_file(
            name,
            "document; may be compressed. With --shard, several documents: document n of --source "
            "is aligned with document n of --target",
            required=True,
        )
    parser.add_columns(
        "columns of the ids and the sentences of both documents, or of the sentences only "
        "[`id TAB sentence`, or one sentence per line]"
    )
    add(
        "--paragraphs",
        action="store_true",
        help="a line is a paragraph: split it into sentences by rules of the script",
    )
    add(
        "--joins",
        choices=JOINS,
        default="sum",
        help="vectors of joined sentences. sum: the sum of the vectors of the sentences. encode: "
        "the vector of the joined text, which takes about ten times as long [sum]",
    )
    parser.add_file("--output", "file for the pairs; with --shard, a folder of parts")
    add(
        "--output_format",
        choices=PAIR_FORMATS,
        help="format of the pairs [the ending of --output; else tsv]",
    )
    outputs.add_scores(parser, "confidence of each pair")
    add("--languages", metavar="A,B", help="for TMX: the languages of both sides, such as en,de")
    parser.add_file(
        "--ladder",
        "file for the zero-based line numbers of each pair, `[3, 4] TAB [5]`; with --shard, parts "
        "always have such a file",
    )
    parser.add_file("--html", "file for an HTML page to read both documents, worst pairs first")
    add(
        "--threshold",
        metavar="T",
        type=float,
        default=0.0,
        help="minimum confidence of a pair, from 0 to 1; other pairs are counted and left out of "
        "--output and --ladder [0]",
    )
    parser.add_malformed("a blank line, which is a break")
    outputs.add_shard_flag(parser)


def check(flags: Namespace) -> tuple[str, list[str]]:
    """Raises a `ConfigError` if flags contradict each other, or an output cannot be written.

    Returns:
      The format of the pairs, and the two languages of TMX.
    """
    if not 0 <= flags.threshold <= 1:
        raise ConfigError(f"--threshold={flags.threshold}: expected a confidence from 0 to 1")
    files = ("output", "ladder", "html")
    if not any(getattr(flags, name) for name in files):
        raise ConfigError("nothing to do: name a file for the pairs with --output=FILE")
    if flags.shard:
        if not flags.output:
            raise ConfigError("--shard needs a folder that all shards share: --output=FOLDER")
        for name in ("ladder", "html"):
            if getattr(flags, name):
                raise ConfigError(f"--{name} has no effect with --shard; remove it")
        outputs.check_folder("output", flags.output)
    inputs: list[tuple[str, Any]] = [
        (name, getattr(flags, name)) for name in ("checkpoint", "source", "target")
    ]
    for name in () if flags.shard else files:
        outputs.check_output(name, getattr(flags, name), inputs)
        inputs.append((name, getattr(flags, name)))
    ending = flags.output.suffix[1:].lower() if flags.output else ""
    name = flags.output_format or (ending if ending in PAIR_FORMATS else "tsv")
    languages = [code.strip() for code in (flags.languages or "").split(",")]
    if name == "tmx" and (len(languages) != 2 or not all(languages)):
        raise ConfigError("TMX names the languages of its texts; set --languages, such as en,de")
    if name == "tmx" and languages[0] == languages[1]:
        raise ConfigError(f"--languages={flags.languages}: expected two different languages")
    if name != "tmx" and flags.languages:
        raise ConfigError("--languages needs --output_format=tmx; remove --languages")
    return name, languages


@command.entry("align_documents", __doc__, _add_flags)
def main(flags: Namespace) -> None:
    """Aligns two documents or, with --shard, the missing documents of this shard."""
    name, languages = check(flags)
    from xlj.document_alignment import page, pair_formats, report
    from xlj.io import atomic, file_ranges

    write = pair_formats.writer(name, flags.scores, languages)
    sources, targets = (
        file_ranges.files_of_flag(side, getattr(flags, side)) for side in ("source", "target")
    )
    if len(sources) != len(targets):
        raise ConfigError(
            f"--source has {len(sources)} documents, but --target has {len(targets)}; expected the "
            "same number, in the same order"
        )
    skipping = Skipping(flags.malformed, "--malformed")
    if flags.shard:
        _align_shard(flags, name, list(zip(sources, targets, strict=True)), write, skipping)
        return
    if len(sources) > 1:
        raise ConfigError("several documents need --shard, such as --shard=1/1")
    documents = _read(flags, (sources[0], targets[0]), skipping)
    aligned = _align(flags, sentence_vectors.load_embedder(flags), documents)
    summary = report.summarise(aligned, flags.threshold)
    selected = pair_formats.select(aligned, flags.threshold)
    for path, lines in ((flags.output, write), (flags.ladder, pair_formats.ladder)):
        if path:
            _write(path, lines, selected)
    if flags.html:
        with atomic.writing(flags.html) as file:
            page.write(file, f"{sources[0].name} and {targets[0].name}", aligned, summary)
    skipping.report()
    print(json.dumps(summary, ensure_ascii=False))


def _align_shard(
    flags: Namespace,
    format_name: str,
    documents: Sequence[tuple[Path, Path]],
    write: "Writer",
    skipping: Skipping,
) -> None:
    """Aligns the missing documents of this shard; each pair of documents is a part."""
    from xlj.document_alignment import pair_formats, report
    from xlj.io.part_files import PartFiles

    paths = [path for pair in documents for path in pair]
    for path in paths:
        if not path.is_file():
            raise ConfigError(f"{path}: expected the path of a regular file")
    names = ("layer", "pooling", "prompt", "columns", "paragraphs", "joins", "scores", "languages")
    job = outputs.shard_job(flags, paths, (*names, "threshold", "malformed"))
    job["output_format"] = format_name
    part_files = PartFiles(flags.output, job, len(documents), f".{format_name}", flags.shard)
    embedder = sentence_vectors.load_embedder(flags) if part_files.remaining() else None
    for part in part_files.remaining():
        aligned = _align(flags, embedder, _read(flags, documents[part], skipping))
        summary = report.summarise(aligned, flags.threshold)
        selected = pair_formats.select(aligned, flags.threshold)
        file = part_files.file(part)
        _write(file.with_suffix(".ladder"), pair_formats.ladder, selected)
        _write(file, write, selected)
        source, target = map(str, documents[part])
        values = {name: summary[name] for name in ("pairs", "left_out", "confidence")}
        part_files.mark_complete(part, source=source, target=target, **values)
        print(json.dumps({"source": source, "target": target} | summary, ensure_ascii=False))
    skipping.report()
    outputs.finish_shard(part_files)


def _write(path: Path, lines: "Writer", aligned: "Aligned") -> None:
    from xlj.io import atomic

    with atomic.writing(path) as file:
        for line in lines(aligned):
            file.write(line.encode())
    print(f"{path}: {len(aligned.pairs):,} pairs", file=sys.stderr)


def _read(
    flags: Namespace, paths: tuple[Path, Path], skipping: Skipping
) -> "tuple[Document, Document]":
    from xlj.document_alignment import documents

    source, target = (
        documents.read(path, flags.columns, flags.paragraphs, skipping) for path in paths
    )
    return source, target


def _align(
    flags: Namespace,
    embedder: "SentenceEmbedder | None",
    documents: "tuple[Document, Document]",
) -> "Aligned":
    """Returns the documents and all steps of their alignment."""
    from xlj.document_alignment import aligner
    from xlj.document_alignment.pair_formats import Aligned

    assert embedder is not None
    embedder.truncated = 0
    source, target = (_blocks(embedder, document, flags.joins) for document in documents)
    sentence_vectors.report_truncated(embedder)
    return Aligned(*documents, aligner.align(source, target))


def _blocks(embedder: "SentenceEmbedder", document: "Document", joins: str) -> "Blocks":
    import numpy as np

    from xlj.document_alignment import blocks

    texts, starts = document.texts, document.starts
    joined = None
    if joins == "encode":
        sizes = range(2, blocks.SIZES + 1)
        joined = np.stack(
            [embedder.embed(blocks.joined_texts(texts, starts, size))[0] for size in sizes]
        )
    return blocks.of_sentences(embedder.embed(texts)[0], texts, starts, joined)


if __name__ == "__main__":
    raise SystemExit(main())
