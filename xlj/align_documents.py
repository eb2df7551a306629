r"""Aligns the sentences of two documents that are translations, and writes sentence pairs.

    python -m xlj.align_documents --checkpoint=DIR --source=book.en.txt --target=book.de.txt \
        --output=pairs.tsv

A document has one sentence per line or, with --paragraphs, one paragraph. A pair has one to four
sentences of each side; other sentences have no counterpart. The command prints a report. --ladder
writes the line numbers of the pairs, and --html a page to read both sides. --source and --target
may name several documents each. --shard=I/N divides them among hosts. More: docs/align_documents.md
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
    from xlj.document_alignment.documents import Document, Splitter
    from xlj.document_alignment.pair_formats import Aligned, Writer
    from xlj.io.json_file import Record

Paths = Sequence[tuple[Path, Path]]
"""The paths of pairs of documents."""


def _add_flags(parser: Parser) -> None:
    add = parser.add_argument
    sentence_vectors.add_flags(parser)
    for name in ("--source", "--target"):
        parser.add_file(
            name,
            "document; may be compressed. Several documents: a pattern ('text/*.txt') or names "
            "separated by commas. Document n of --source is aligned with document n of --target",
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
        "--splitter",
        metavar="MODULE:FUNCTION",
        help="for --paragraphs: your function, which takes a paragraph and returns a list of "
        "sentences [the rules]",
    )
    add(
        "--joins",
        choices=JOINS,
        default="sum",
        help="vectors of joined sentences. sum: the sum of the vectors of the sentences. encode: "
        "the vector of the joined text, which takes about ten times as long [sum]",
    )
    parser.add_file(
        "--output", "file for the pairs of all documents; with --shard, a folder of parts"
    )
    add(
        "--output_format",
        choices=PAIR_FORMATS,
        help="format of the pairs [the ending of --output; else tsv]",
    )
    outputs.add_scores(parser, "confidence of each pair")
    add("--languages", metavar="A,B", help="for TMX: the languages of both sides, such as en,de")
    parser.add_file(
        "--ladder",
        "file for the zero-based line numbers of each pair, `[3, 4] TAB [5]`, and the names of the "
        "documents if there are several. With --shard, parts always have such a file",
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


def check(flags: Namespace, paths: Paths) -> tuple[str, list[str]]:
    """Raises a `ConfigError` if flags contradict each other, or an output cannot be written.

    Returns:
      The format of the pairs, and the two languages of TMX.
    """
    if not 0 <= flags.threshold <= 1:
        raise ConfigError(f"--threshold={flags.threshold}: expected a confidence from 0 to 1")
    if flags.splitter and not flags.paragraphs:
        raise ConfigError("--splitter splits paragraphs; add --paragraphs")
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
    inputs: list[tuple[str, Any]] = [("checkpoint", flags.checkpoint)]
    for source, target in paths:
        inputs += ("source", source), ("target", target)
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
    """Aligns all documents or, with --shard, the missing documents of this shard."""
    from xlj.document_alignment import pair_formats
    from xlj.io import file_ranges

    sources, targets = (
        file_ranges.files_of_flag(side, getattr(flags, side)) for side in ("source", "target")
    )
    if len(sources) != len(targets):
        raise ConfigError(
            f"--source has {len(sources)} documents, but --target has {len(targets)}; expected the "
            "same number, in the same order"
        )
    paths = list(zip(sources, targets, strict=True))
    name, languages = check(flags, paths)
    write = pair_formats.writer(name, flags.scores, languages)
    splitter = _splitter(flags)
    skipping = Skipping(flags.malformed, "--malformed")
    if flags.shard:
        _align_shard(flags, name, paths, write, splitter, skipping)
    else:
        _align_all(flags, paths, write, splitter, skipping)


def _splitter(flags: Namespace) -> "Splitter | None":
    """Returns the function that splits paragraphs; None if a line is a sentence."""
    from xlj.config.user_code import check_arguments, function_of
    from xlj.data.text.splitting import split

    if not flags.splitter:
        return split if flags.paragraphs else None
    check_arguments(flags.splitter, "--splitter", ("paragraph",))
    return function_of(flags.splitter, "--splitter")


def _align_all(
    flags: Namespace,
    paths: Paths,
    write: "Writer",
    splitter: "Splitter | None",
    skipping: Skipping,
) -> None:
    """Aligns all documents, and writes all outputs at the end."""
    from xlj.document_alignment import encoding, page, pair_formats, report
    from xlj.io import atomic

    read = [_read(flags, pair, splitter, skipping) for pair in paths]
    with_ids = [bool(source.ids or target.ids) for source, target in read]
    if any(with_ids) and not all(with_ids):
        some, none = (paths[with_ids.index(has_ids)][0] for has_ids in (True, False))
        raise ConfigError(
            f"{none} has no column of ids, but {some} has; align them by separate commands"
        )
    embedder = sentence_vectors.load_embedder(flags)
    aligned = []
    for pair, documents in zip(paths, read, strict=True):
        names = tuple(map(str, pair)) if len(paths) > 1 else ()
        result = encoding.align(embedder, *documents, flags.joins)
        aligned.append(result._replace(names=names))
    sentence_vectors.report_truncated(embedder)
    summary = report.summarise(aligned, flags.threshold)
    selected = [pair_formats.select(each, flags.threshold) for each in aligned]
    for path, lines in ((flags.output, write), (flags.ladder, pair_formats.ladder)):
        if path:
            _write(path, lines, selected)
    if flags.html:
        title = " and ".join(path.name for path in paths[0])
        if len(paths) > 1:
            title = f"{len(paths):,} pairs of documents"
        with atomic.writing(flags.html) as file:
            page.write(file, title, aligned, summary)
    skipping.report()
    _print(summary)


def _align_shard(
    flags: Namespace,
    format_name: str,
    documents: Paths,
    write: "Writer",
    splitter: "Splitter | None",
    skipping: Skipping,
) -> None:
    """Aligns the missing documents of this shard; each pair of documents is a part."""
    from xlj.document_alignment import encoding, pair_formats, report
    from xlj.io.part_files import PartFiles

    paths = [path for pair in documents for path in pair]
    for path in paths:
        if not path.is_file():
            raise ConfigError(f"{path}: expected the path of a regular file")
    names = ("layer", "pooling", "prompt", "columns", "paragraphs", "joins", "scores", "languages")
    job = outputs.shard_job(flags, paths, (*names, "threshold", "malformed"))
    job["output_format"] = format_name
    if flags.splitter:
        job["splitter"] = flags.splitter
    part_files = PartFiles(flags.output, job, len(documents), f".{format_name}", flags.shard)
    if missing := part_files.remaining():
        embedder = sentence_vectors.load_embedder(flags)
    for part in missing:
        read = _read(flags, documents[part], splitter, skipping)
        embedder.truncated = 0
        aligned = encoding.align(embedder, *read, flags.joins)
        sentence_vectors.report_truncated(embedder)
        summary = report.summarise([aligned], flags.threshold)
        selected = [pair_formats.select(aligned, flags.threshold)]
        file = part_files.file(part)
        _write(file.with_suffix(".ladder"), pair_formats.ladder, selected)
        _write(file, write, selected)
        source, target = map(str, documents[part])
        values = {name: summary[name] for name in ("pairs", "left_out", "confidence")}
        part_files.mark_complete(part, source=source, target=target, **values)
        _print({"source": source, "target": target} | summary)
    skipping.report()
    outputs.finish_shard(part_files)


def _print(summary: "Record") -> None:
    print(json.dumps(summary, ensure_ascii=False))


def _write(path: Path, lines: "Writer", documents: "Sequence[Aligned]") -> None:
    from xlj.io import atomic

    with atomic.writing(path) as file:
        for line in lines(documents):
            file.write(line.encode())
    count = sum(len(aligned.pairs) for aligned in documents)
    print(f"{path}: {count:,} pairs", file=sys.stderr)


def _read(
    flags: Namespace, paths: tuple[Path, Path], splitter: "Splitter | None", skipping: Skipping
) -> "tuple[Document, Document]":
    from xlj.document_alignment import documents

    source, target = (documents.read(path, flags.columns, splitter, skipping) for path in paths)
    return source, target


if __name__ == "__main__":
    raise SystemExit(main())
