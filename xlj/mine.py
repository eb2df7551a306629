r"""Finds the sentences of two texts that translate each other.

    python -m xlj.mine --checkpoint=DIR --source=de.txt --target=en.txt --output=pairs.tsv \
        --threshold=1.06

The texts have a sentence a line, in any order and number; a line of the output is `source TAB
target`. The threshold can be found on texts whose translations are known: `--gold=FILE` prints the
one of the best F1 (BUCC's task). docs/retrieve.md tells more.
"""

from __future__ import annotations

import json
import math
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlj import cli, sentence_doors
from xlj.config import ConfigError


def _flags() -> Namespace:
    parser = cli.Parser(__doc__)
    sentence_doors.add_flags(parser)
    for name in ("--source", "--target"):
        parser.add_argument(
            name,
            metavar="FILE",
            required=True,
            type=Path,
            help="a sentence a line, or `id TAB sentence`: text, also .gz, .xz or .zst",
        )
    parser.add_argument(
        "--threshold",
        metavar="T",
        type=float,
        help="the least margin of a pair: its cosine over the mean cosine of both sentences with "
        "their nearest neighbours. Default: the one of the best F1 on --gold",
    )
    parser.add_argument(
        "--gold",
        metavar="FILE",
        type=Path,
        help="the true pairs, lines `source id TAB target id`; prints precision, recall and F1",
    )
    parser.add_argument(
        "--output", metavar="FILE", type=Path, help="where the pairs go, best first"
    )
    parser.add_argument(
        "--scores", action="store_true", help="write the margin as a third column of --output"
    )
    sentence_doors.add_centred(parser)
    return parser.parse_args()


def run(flags: Namespace) -> None:
    """Embeds both texts, mines, writes, prints."""
    _check(flags)
    import numpy as np

    from xlj.evaluation.metrics.pairs import best_threshold, pair_scores
    from xlj.retrieval import mining, sentence_files

    source, target = (sentence_files.read_with_ids(f) for f in (flags.source, flags.target))
    for path, read in ((flags.source, source), (flags.target, target)):
        sentence_doors.check_centred(flags, path, read.texts)
    gold = _gold(flags, source, target) if flags.gold else None
    embedder = sentence_doors.embedder(flags)
    (texts, names), (other_texts, other_names) = map(_distinct, (source, target))
    vectors = sentence_doors.embed(flags, embedder, texts, other_texts)
    found = mining.mine(vectors[0][0], vectors[1][0])
    sentence_doors.report_cut(embedder)
    ends = zip(found.sources.tolist(), found.targets.tolist(), strict=True)
    pairs = [(names[i], other_names[j]) for i, j in ends]
    threshold = flags.threshold
    if gold and threshold is None:
        right = np.array([pair in gold for pair in pairs])
        threshold = best_threshold(found.scores, right, len(gold))
    pairs = pairs[: int((found.scores >= threshold).sum())]
    if flags.output:
        _write(flags.output, pairs, found.scores.tolist() if flags.scores else None)
    shown = threshold if math.isfinite(threshold) else None  # no pair is right
    printed = {"layer": embedder.layers[0], "threshold": shown, "pairs": len(pairs)}
    if gold:
        printed |= {"gold": len(gold), **pair_scores(pairs, gold)._asdict()}
    print(json.dumps(printed), flush=True)


def _gold(flags: Namespace, source: Any, target: Any) -> set[tuple[str, str]]:
    from xlj.retrieval import sentence_files

    for path, side in ((flags.source, source), (flags.target, target)):
        if side.ids is None:
            raise ConfigError(f"--gold names ids, but {path} has none; lines are `id TAB sentence`")
    return sentence_files.read_pairs(flags.gold, source.ids or [], target.ids or [])


def _check(flags: Namespace) -> None:
    if flags.threshold is None and flags.gold is None:
        raise ConfigError(
            "say how alike the sentences of a pair must be with --threshold=T (1.06, say; 0 keeps "
            "all), or find it with --gold=FILE"
        )
    if flags.threshold is not None and math.isnan(flags.threshold):
        raise ConfigError("--threshold=nan is no number")
    if flags.gold is None and flags.output is None:
        raise ConfigError("say where the pairs go with --output=FILE, or score them with --gold")
    if flags.scores and flags.output is None:
        raise ConfigError("--scores is a column of --output, which is missing")
    if flags.output:
        cli.check_output("output", flags.output)


def _distinct(side: Any) -> tuple[list[str], list[str]]:
    """Each sentence of a `Sentences` once, and the id of its first line, or else itself. Copies
    would be each other's rivals and neighbours."""
    first: dict[str, str] = {}
    for text, name in zip(side.texts, side.ids or side.texts, strict=True):
        first.setdefault(text, name)
    return list(first), list(first.values())


def _write(path: Path, pairs: Sequence[tuple[str, str]], scores: Sequence[float] | None) -> None:
    from xlj.io import atomic

    with atomic.writing(path) as file:
        for k, pair in enumerate(pairs):
            columns = pair if scores is None else (*pair, f"{scores[k]:.6f}")
            file.write(("\t".join(columns) + "\n").encode())


if __name__ == "__main__":
    with cli.readable_errors():
        run(_flags())
