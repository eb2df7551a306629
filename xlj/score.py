r"""Scores sentence pairs, keeps the best pairs, or correlates scores with gold scores (STS).

    python -m xlj.score --checkpoint=DIR --input=pairs.tsv --output=scores.txt
    python -m xlj.score --checkpoint=DIR --source=a.en --target=a.de --by=margin --keep=0.8 \
        --output=kept.tsv
    python -m xlj.score --checkpoint=DIR --input='sts/test/{language}.tsv' --gold

Each input line is `source TAB target`. Output line i is the score of input line i. With --keep or
--threshold, the output has the input lines with the best scores instead. --shard=I/N divides the
work among hosts. --gold prints correlations with the gold scores of each file. More: docs/score.md
"""

import argparse
import contextlib
import itertools
import json
import math
import statistics
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlj.cli import command, outputs, sentence_vectors
from xlj.cli.parser import Parser
from xlj.config import ConfigError
from xlj.config.choices import PAIR_SCORES
from xlj.io.malformed import Skipping

if TYPE_CHECKING:  # types only: a command reads its flags without JAX
    import numpy as np

    from xlj.io.part_files import PartFiles
    from xlj.retrieval.pair_scores import TextPair, Unit


def add(parser: Parser) -> None:
    """Adds all flags."""
    add = parser.add_argument
    sentence_vectors.add_flags(parser, has_compute=False)
    parser.add_file(
        "--input",
        "sentence pairs: lines `source TAB target` or `source ||| target`, two files 'A|B', TMX, "
        "JSON lines or Parquet [standard input]",
    )
    parser.add_columns(
        "columns of --input that contain the source, the target and, with --gold, the gold score: "
        "one-based numbers, names in the first line, JSON keys, or the two languages of a TMX file "
        "[the first columns; with --gold, also the usual names]",
    )
    for name in ("--source", "--target"):
        parser.add_file(name, f"file whose line i is the {name[2:]} of pair i, instead of --input")
    add(
        "--by",
        choices=PAIR_SCORES,
        default="cosine",
        help="cosine: the cosine of the two sentence vectors. margin: the cosine divided by the "
        "mean cosine of both vectors with their nearest neighbours among all pairs, as in LASER. "
        "likelihood: how well a model of configs/aligner.py generates each sentence from the other "
        "sentence [cosine]",
    )
    add(
        "--output",
        metavar="FILE",
        default="-",
        help="file for the scores, or for the pairs that --keep, --threshold or --drop_copies "
        "selects; with --shard, a folder of parts [standard output]",
    )
    add(
        "--keep",
        metavar="SHARE",
        type=_parse_share,
        help="write this share of the pairs instead of scores: the pairs with the best scores",
    )
    add(
        "--threshold",
        metavar="T",
        type=float,
        help="write the pairs with at least this score instead of scores",
    )
    outputs.add_scores(parser, "score of each selected pair")
    sentence_vectors.add_drop_copies(parser)
    add(
        "--gold",
        action="store_true",
        help="the files of --input have gold scores (semantic textual similarity): print for each "
        "file Spearman's and Pearson's correlation with them. {language} in --input matches any "
        "language",
    )
    parser.add_malformed("the score nan, which --keep and --threshold never select")
    outputs.add_shard_flag(parser)


def _parse_share(text: str) -> float:
    """Converts the value of a flag that takes a share above 0 and at most 1."""
    share = float(text)
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(
            f"{text} is not a share above 0 and up to 1; for a minimum score use --threshold"
        )
    return share


_parse_share.__name__ = "float"


def check(flags: Namespace) -> None:
    """Raises a `ConfigError` if flags contradict each other, or the output cannot be written."""
    if (flags.source is None) != (flags.target is None):
        raise ConfigError("--source and --target must be set together: line i of both is pair i")
    if flags.source and flags.input:
        raise ConfigError("name pairs with --input, or with --source and --target, not both")
    if flags.columns and flags.source:
        raise ConfigError("--columns names columns of --input; remove it")
    if flags.gold:
        is_written = _is_filter(flags) or flags.shard or flags.output != "-"
        if is_written or flags.malformed != "error" or not flags.input:
            raise ConfigError(
                "--gold reads --input and prints correlations: set --input, and remove --source, "
                "--target, --output, --keep, --threshold, --shard and --malformed"
            )
        if len(flags.columns) not in (0, 3):
            raise ConfigError(
                f"--columns={','.join(flags.columns)}: with --gold, name the columns of the two "
                "sentences and of the score"
            )
        return
    if flags.threshold is not None and math.isnan(flags.threshold):
        raise ConfigError("--threshold=nan is not a number")
    if flags.scores and not _is_filter(flags):
        raise ConfigError(
            "--scores adds a column to selected pairs: set --keep, --threshold or --drop_copies"
        )
    if flags.shard:
        if flags.output == "-":
            raise ConfigError("--shard needs a folder that all shards share: --output=FOLDER")
        outputs.check_folder("output", flags.output)
        return
    if flags.output != "-":
        names = ("checkpoint", "input", "source", "target")
        inputs: list[tuple[str, str | Path | None]] = [(n, getattr(flags, n)) for n in names]
        inputs += [("input", side) for side in filter(None, f"{flags.input or ''}".split("|"))]
        outputs.check_output("output", flags.output, inputs)


def _is_filter(flags: Namespace) -> bool:
    """Whether the output has selected pairs instead of scores."""
    return flags.keep is not None or flags.threshold is not None or flags.drop_copies


@command.entry("score", __doc__, add)
def main(flags: Namespace) -> None:
    """Scores the input in parts, then writes all scores or the best pairs."""
    check(flags)
    if flags.gold:
        _correlate(flags)
        return
    from xlj.io.part_files import PartFiles
    from xlj.retrieval import pair_scores

    with contextlib.ExitStack() as stack:
        folder = Path(flags.output)
        shard = flags.shard or (1, 1)
        if not flags.shard:
            near = None if flags.output == "-" else Path(flags.output).resolve().parent
            temporary = tempfile.TemporaryDirectory(prefix=".xlj-score-", dir=near)
            folder = Path(stack.enter_context(temporary)) / "parts"
        spool = None if flags.shard else folder.parent
        paths = pair_scores.find_files(flags.input, flags.source, flags.target, spool)
        units = pair_scores.split_units(paths, flags.columns)
        job = outputs.shard_job(
            flags, list(itertools.chain(*paths)), ("by", "layer", "pooling", "prompt", "columns")
        )
        part_files = PartFiles(folder, job, len(units), ".npy", shard)
        skipping = Skipping(flags.malformed, "--malformed")
        if not flags.shard:
            # Reads the whole input before the model is loaded, so that errors are reported early.
            for unit in units:
                for _ in unit.pairs(skipping):
                    pass
        _score_parts(flags, part_files, units, skipping)
        skipping.report()
        if not outputs.finish_shard(part_files):
            return
        output = flags.output
        if flags.shard:
            output = str(folder / ("kept.tsv" if _is_filter(flags) else "scores.txt"))
        _write(flags, output, _all_scores(flags, part_files, units), units)


def _correlate(flags: Namespace) -> None:
    """Prints the correlations of each file, and their average."""
    from xlj.data.text import templates
    from xlj.evaluation import sts
    from xlj.inference import pretrained
    from xlj.io import file_ranges
    from xlj.retrieval.pair_scores import PairScorer, TextPair

    if "{language}" in str(flags.input):
        named = templates.find_languages(str(flags.input))
        if not named:
            raise ConfigError(f"--input={flags.input}: there is no such file of any language")
    else:
        named = [("", path) for path in file_ranges.files_of_flag("input", flags.input)]
    # Reads all files before the model is loaded, so that errors in them are reported early.
    rated = [sts.read(path, flags.columns) for _, path in named]
    scorer = PairScorer(
        pretrained.load(flags.checkpoint), flags.by, flags.layer, flags.pooling, flags.prompt
    )
    results = []
    for (language, path), (pairs, gold, genres) in zip(named, rated, strict=True):
        scores = scorer.scores([TextPair(*pair, "") for pair in pairs], flags.by)
        results.append(sts.correlate(scores.tolist(), gold))
        names = {"file": str(path), **({"language": language} if language else {})}
        counts = {"pairs": len(pairs), **({"genres": genres} if genres else {})}
        print(json.dumps({**names, **results[-1]._asdict(), **counts}), flush=True)
    scorer.report()
    if len(results) > 1:
        means = sts.Correlations(*map(statistics.fmean, zip(*results, strict=True)))
        pairs_in_all = sum(len(each.pairs) for each in rated)
        print(json.dumps({"file": "average", **means._asdict(), "pairs": pairs_in_all}))
    for warning in dict.fromkeys(each.warning for each in rated if each.warning):
        print(warning, file=sys.stderr)


def _score_parts(
    flags: Namespace, part_files: "PartFiles", units: "Sequence[Unit]", skipping: Skipping
) -> None:
    """Computes the scores of the missing parts of this shard. For --by=margin, computes only their
    vectors, since margins need the vectors of all parts."""
    missing = part_files.remaining()
    if not missing:
        return
    from tqdm import tqdm

    from xlj.inference import pretrained
    from xlj.retrieval import pair_scores, sentence_files

    scorer = pair_scores.PairScorer(
        pretrained.load(flags.checkpoint), flags.by, flags.layer, flags.pooling, flags.prompt
    )
    embedder = scorer.embedder if flags.by == "margin" else None
    width = 2 * embedder.width if embedder else 1
    with tqdm(desc="scoring", unit=" pairs", disable=None) as bar:
        for part in missing:
            rows = 0
            pairs = units[part].pairs(skipping)
            with sentence_files.writing_vectors(part_files.file(part), width, "float32") as append:
                chunks = (
                    pair_scores.vectors(pairs, embedder, bar.update)
                    if embedder
                    else scorer.columns(pairs, bar.update)
                )
                for chunk in chunks:
                    append(chunk)
                    rows += len(chunk)
            part_files.mark_complete(part, **units[part].as_json(), rows=rows)
    scorer.report()


def _all_scores(flags: Namespace, part_files: "PartFiles", units: "Sequence[Unit]") -> "np.ndarray":
    """Returns the scores of all pairs, float32 [pairs]; NaN for pairs without a score."""
    import numpy as np

    from xlj.retrieval import pair_scores

    arrays = [np.load(part_files.file(part), mmap_mode="r") for part in range(len(units))]
    if flags.by != "margin":
        return pair_scores.join([array[:, 0] for array in arrays])
    width = arrays[0].shape[1] // 2 if arrays else 1
    return pair_scores.margins_of(_all_pairs(flags, units), arrays, width)


def _all_pairs(flags: Namespace, units: "Sequence[Unit]") -> "Iterator[TextPair]":
    for unit in units:
        yield from unit.pairs(Skipping(flags.malformed, "--malformed"))


def _write(flags: Namespace, output: str, scores: "np.ndarray", units: "Sequence[Unit]") -> None:
    import numpy as np

    from xlj.retrieval import pair_scores

    is_filter = _is_filter(flags)
    copies = np.fromiter((pair.is_copy for pair in _all_pairs(flags, units)), bool, len(scores))
    eligible = np.where(copies, np.float32(np.nan), scores) if flags.drop_copies else scores
    mask = pair_scores.select_best(eligible, flags.keep, flags.threshold)
    with outputs.open_output(output) as file:
        assert file is not None
        if not is_filter:
            for score in _iterate_numbers(scores):
                file.write(f"{score:.6f}\n".encode())
        else:
            pairs = _all_pairs(flags, units)
            for pair, is_best, score in zip(
                pairs, _iterate_numbers(mask), _iterate_numbers(scores), strict=True
            ):
                if is_best:
                    column = f"\t{score:.6f}" if flags.scores else ""
                    file.write(f"{pair.line}{column}\n".encode())
    if output != "-":
        what = (
            f"{int(mask.sum()):,} of {len(scores):,} pairs"
            if is_filter
            else f"{len(scores):,} scores"
        )
        print(f"{output}: {what}", file=sys.stderr)
    sentence_vectors.report_copies(flags, int(copies.sum()))
    empty = int(np.isnan(scores).sum())
    if empty:
        print(f"pairs without a score, because a side is empty: {empty:,}", file=sys.stderr)


def _iterate_numbers(array: "np.ndarray") -> "Iterator[Any]":
    """Yields the numbers of an array, converting 65,536 at a time to limit memory."""
    for start in range(0, len(array), 65536):
        yield from array[start : start + 65536].tolist()


if __name__ == "__main__":
    raise SystemExit(main())
