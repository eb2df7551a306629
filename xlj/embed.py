"""Writes a vector for every line of a text, as a NumPy array.

    python -m xlj.embed --checkpoint=DIR --input=sentences.txt --output=vectors.npy
    zcat *.gz | python -m xlj.embed --checkpoint=DIR --output=vectors.npy --dtype=float16

Row i of the array is the vector of line i. The memory does not grow with the length of the text,
and the output file appears when it is complete. --shard=I/N divides the work among hosts. More:
docs/embed.md
"""

import sys
from argparse import Namespace
from pathlib import Path

from xlj.cli import command, outputs, sentence_vectors
from xlj.cli.parser import Parser
from xlj.config.choices import VECTOR_TYPES
from xlj.io.malformed import Skipping


def _add_flags(parser: Parser) -> None:
    add = parser.add_argument
    sentence_vectors.add_flags(parser)
    parser.add_file(
        "--input",
        "text with one sentence per line; may be compressed (.gz, .bz2, .xz or .zst) [standard "
        "input]",
        default=Path("-"),
    )
    sentence_vectors.add_columns(parser, "--input")
    parser.add_file(
        "--output", ".npy file for the vectors; with --shard, a folder of parts", required=True
    )
    parser.add_malformed("a row of NaN")
    outputs.add_shard_flag(parser)
    add(
        "--dtype",
        choices=VECTOR_TYPES,
        default="float32",
        help="number type of the vectors [float32]",
    )


@command.entry("embed", __doc__, _add_flags)
def main(flags: Namespace) -> None:
    """Reads, embeds and writes a few thousand sentences at a time."""
    if flags.shard:
        _embed_shard(flags)
        return
    inputs = [("checkpoint", flags.checkpoint), ("input", flags.input)]
    outputs.check_output("output", flags.output, inputs)
    outputs.check_output("output", flags.output, endings=(".npy",))
    from tqdm import tqdm

    from xlj.io import files
    from xlj.io.columns import open_lines, own_text
    from xlj.retrieval import sentence_files

    total, skipping = None, Skipping(flags.malformed, "--malformed")
    layout, lines = open_lines(flags.input, flags.columns, skipping)
    if not files.is_stream(flags.input):
        # A first pass over the input, before the model is loaded, finds malformed lines early.
        total = sum(1 for _ in lines)
        _, lines = open_lines(flags.input, flags.columns, skipping, layout)
    embedder = sentence_vectors.load_embedder(flags)
    with (
        sentence_files.writing_vectors(
            flags.output, embedder.width, flags.dtype, skipping
        ) as append,
        tqdm(total=total, desc="embedding", unit=" sentences", disable=None) as bar,
    ):
        rows = 0
        for vectors in embedder.stream(map(own_text, lines), bar.update):
            append(vectors[0])
            rows += vectors.shape[1]
    shape = f"{rows:,} vectors of {embedder.width} numbers"
    print(f"{flags.output}: {shape}, {flags.dtype}", file=sys.stderr)
    skipping.report()
    sentence_vectors.report_truncated(embedder)


def _embed_shard(flags: Namespace) -> None:
    """Embeds the missing parts of this shard."""
    outputs.check_folder("output", flags.output)
    from xlj.io import file_ranges
    from xlj.io.columns import open_lines
    from xlj.io.part_files import PartFiles

    paths = file_ranges.files_of_flag("input", flags.input)
    units = file_ranges.split_files(paths)
    layouts = {path: open_lines(path, flags.columns)[0] for path in paths}
    job = outputs.shard_job(flags, paths, ("layer", "pooling", "prompt", "dtype", "columns"))
    part_files = PartFiles(flags.output, job, len(units), ".npy", flags.shard)
    skipping = Skipping(flags.malformed, "--malformed")
    sentence_vectors.embed_parts(flags, part_files, units, layouts, flags.dtype, skipping)
    skipping.report()
    outputs.finish_shard(part_files)


if __name__ == "__main__":
    raise SystemExit(main())
