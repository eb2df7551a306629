"""Labels new text with a fine-tuned model: tags, classes, answers, scores.

    python -m xlj.predict --checkpoint=runs/finetune/panx/seed-0 --input=text.txt --output=tags.tsv
    cat text.conll | python -m xlj.predict --checkpoint=DIR --input_format=conll > tagged.conll

DIR is a run of xlj.finetune, or a folder that `xlj.convert export` wrote from such a run. Output
line i has the labels of input line i. --shard=I/N divides the work among hosts. More:
docs/predict.md
"""

import itertools
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from xlj.cli import command, outputs
from xlj.cli.parser import Parser
from xlj.config import ConfigError
from xlj.config.choices import LABEL_FORMATS, TEXT_FORMATS
from xlj.io import file_ranges
from xlj.io.malformed import Skipping

if TYPE_CHECKING:  # these modules import JAX, which takes too long for --help
    from xlj.finetuning.new_text import Item
    from xlj.inference.predictor import Labeller
    from xlj.io.progress import Advance


def _add_flags(parser: Parser) -> None:
    add = parser.add_argument
    parser.add_checkpoint()
    parser.add_file(
        "--input",
        "text to label; may be compressed (.gz, .bz2, .xz or .zst) [standard input]",
        default=Path("-"),
    )
    add(
        "--input_format",
        choices=TEXT_FORMATS,
        help="text: one sentence per line; for pairs `A TAB B`, for questions `question TAB "
        "context`, for choices `premise TAB choice TAB choice`. jsonl: one JSON object per line. "
        "conll: one word per line, with blank lines between sentences [jsonl if the name of "
        "--input ends in .jsonl or .ndjson, conll for .conll, .conllu, .conllup, .iob, .iob2 or "
        ".bio, else text]",
    )
    add(
        "--columns",
        metavar="WORD",
        default="",
        help="column of words in conll input: a one-based number or a name of the header [as "
        "xlj finetune chooses it]",
    )
    add(
        "--output",
        metavar="FILE",
        default="-",
        help="file for the labels; with --shard, a folder of parts [standard output]",
    )
    add(
        "--output_format",
        choices=LABEL_FORMATS,
        help="tsv: depending on the kind of task, the label and its probability, the tags, the "
        "answer and its score, or the number. jsonl: one object per line with all details. conll: "
        "the words of a text with their tags, one `word TAB tag` per line [conll for conll input, "
        "else tsv]",
    )
    parser.add_malformed("an empty line")
    outputs.add_shard_flag(parser)


@command.entry("predict", __doc__, _add_flags)
def main(flags: Namespace) -> None:
    """Reads, labels and writes a few hundred lines at a time."""
    from xlj.finetuning import new_text

    paths = file_ranges.files_of_flag("input", flags.input) if flags.shard else [flags.input]
    flags.input_format = flags.input_format or new_text.find_format(paths)
    default = "conll" if flags.input_format == "conll" else "tsv"
    flags.output_format = flags.output_format or default
    if flags.columns and flags.input_format != "conll":
        raise ConfigError(f"--columns={flags.columns}: only conll input has a column of words")
    if flags.shard:
        _label_shard(flags, paths)
        return
    if flags.output != "-":
        inputs = [("checkpoint", flags.checkpoint), ("input", flags.input)]
        outputs.check_output("output", flags.output, inputs)
    from tqdm import tqdm

    from xlj.io import files

    new_text.refuse(flags.input, flags.input_format)
    labeller = _load_labeller(flags)
    skipping = Skipping(flags.malformed, "--malformed")

    def items() -> "Iterator[Item]":
        lines, place = files.lines(flags.input, skipping), f"{flags.input}:"
        return new_text.read(
            flags.input_format, lines, place, labeller.kind, skipping, flags.columns
        )

    total = None
    if not files.is_stream(flags.input):
        # Reads the whole input before the model labels it, so that errors in it are reported early.
        total = sum(1 for _ in items())
    hidden = outputs.hides_bar(flags.output)
    with (
        outputs.open_output(flags.output) as output,
        tqdm(total=total, desc="labelling", unit=" lines", disable=hidden) as bar,
    ):
        assert output is not None
        count = 0
        for line in _label(flags, labeller, items(), bar.update):
            output.write(line.encode())
            count += 1
    if flags.output != "-":
        unit = "sentences" if flags.input_format == "conll" else "lines"
        print(f"{flags.output}: {labeller.kind.name} of {count:,} {unit}", file=sys.stderr)
    _report(labeller, skipping)


def _load_labeller(flags: Namespace) -> "Labeller":
    from xlj.finetuning import new_text
    from xlj.inference import pretrained
    from xlj.inference.predictor import Labeller

    labeller = Labeller(pretrained.load(flags.checkpoint), flags.checkpoint)
    new_text.check_formats(labeller.kind, flags.input_format, flags.output_format)
    return labeller


def _label(
    flags: Namespace, labeller: "Labeller", items: "Iterator[Item]", progress: "Advance"
) -> Iterator[str]:
    """Yields the text to write for each item."""
    from xlj.finetuning import new_text

    write = new_text.WRITERS[flags.output_format]
    items, same_items = itertools.tee(items)
    predictions = labeller.stream((item.example for item in items), progress)
    for item, prediction in zip(same_items, predictions, strict=True):
        yield write(labeller.kind, item, prediction)


def _label_shard(flags: Namespace, paths: list[Path]) -> None:
    """Labels the missing parts of this shard of the files."""
    if flags.output == "-":
        raise ConfigError("--shard needs a folder that all shards share: --output=FOLDER")
    outputs.check_folder("output", flags.output)
    from tqdm import tqdm

    from xlj.checkpoints import stored_models
    from xlj.config.task import labelling_options
    from xlj.data.labelled import kind
    from xlj.finetuning import new_text
    from xlj.inference.predictor import task_of
    from xlj.io import atomic
    from xlj.io.part_files import PartFiles

    source = stored_models.find(flags.checkpoint)
    task = task_of(source.task, source.leaves, flags.checkpoint)
    new_text.check_formats(kind.find(task.effective_kind), flags.input_format, flags.output_format)
    for path in paths:
        new_text.refuse(path, flags.input_format)
    # A CoNLL sentence has several lines, so files are not split.
    size = sys.maxsize if flags.input_format == "conll" else file_ranges.RANGE_BYTES
    units = file_ranges.split_files(paths, size)
    job = outputs.shard_job(flags, paths, ("input_format", "output_format"))
    job |= {"columns": flags.columns} if flags.columns else {}
    job["task"] = labelling_options(task)
    part_files = PartFiles(
        Path(flags.output), job, len(units), f".{flags.output_format}", flags.shard
    )
    skipping = Skipping(flags.malformed, "--malformed")
    missing = part_files.remaining()
    if missing:
        labeller = _load_labeller(flags)
        with tqdm(desc="labelling", unit=" lines", disable=None) as bar:
            for part in missing:
                unit, count = units[part], 0
                lines = unit.lines(skipping)
                items = new_text.read(
                    flags.input_format, lines, unit.place, labeller.kind, skipping, flags.columns
                )
                with atomic.writing(part_files.file(part)) as output:
                    for line in _label(flags, labeller, items, bar.update):
                        output.write(line.encode())
                        count += 1
                part_files.mark_complete(part, **unit.as_json(), lines=count)
        _report(labeller, skipping)
    outputs.finish_shard(part_files)


def _report(labeller: "Labeller", skipping: Skipping) -> None:
    skipping.report()
    for what, count in labeller.truncated.items():
        if count and what != "answers":  # new questions have no answers yet
            print(f"{count} {what} were truncated: too long for the model", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
