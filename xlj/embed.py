"""Writes a vector for every line of a text, as a NumPy array.

    python -m xlj.embed --checkpoint=DIR --input=sentences.txt --output=vectors.npy
    zcat *.gz | python -m xlj.embed --checkpoint=DIR --output=vectors.npy --dtype=float16

Row i belongs to line i. The text is read as a stream, and the file appears when all is done.
docs/embed.md tells more.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from xlj import cli, sentence_doors
from xlj.config import ConfigError


def _flags() -> Namespace:
    parser = cli.Parser(__doc__)
    sentence_doors.add_flags(parser)
    parser.add_argument(
        "--input",
        metavar="FILE",
        type=Path,
        default=Path("-"),
        help="a sentence a line: text, also .gz, .xz or .zst; the default is standard input",
    )
    parser.add_argument(
        "--output", metavar="FILE", type=Path, required=True, help="where the vectors go (.npy)"
    )
    parser.add_argument(
        "--dtype", choices=("float32", "float16"), default="float32", help="of the file [float32]"
    )
    return parser.parse_args()


def run(flags: Namespace) -> None:
    """Reads, embeds and writes, some thousand sentences at a time."""
    cli.check_output("output", flags.output)
    from tqdm import tqdm

    from xlj.data.text.scans import scan
    from xlj.io import files
    from xlj.retrieval import sentence_files, vector_file

    total = None
    if not files.is_stream(flags.input):
        # Reads everything once before any work, so that no error in it comes late.
        found = scan(flags.input, columns=1)
        total = found.lines
        if found.invalid:
            raise ConfigError(f"{flags.input}:{found.first_invalid}: the line is not UTF-8")
    embedder = sentence_doors.embedder(flags)
    with (
        vector_file.writing(flags.output, embedder.width, flags.dtype) as append,
        tqdm(total=total, desc="embedding", unit=" sentences", disable=None) as bar,
    ):
        for vectors in embedder.stream(sentence_files.lines(flags.input), bar.update):
            append(vectors[0])
    sentence_doors.report_cut(embedder)


if __name__ == "__main__":
    with cli.readable_errors():
        run(_flags())
