r"""Scores given sentence pairs by how well they translate each other, or keeps the best of them.

    python -m xlj.score --checkpoint=DIR --input=pairs.tsv --output=scores.txt
    python -m xlj.score --checkpoint=DIR --source=a.en --target=a.de --by=margin --keep=0.8 \
        --output=kept.tsv

A line of the input is `source TAB target`; line i of the output is the score of line i, or with
--keep or --threshold the output has the lines that are kept. With --shard=I/N several hosts share
the work. docs/score.md tells more.
"""

import contextlib
import itertools
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlj.cli import command, outputs, scoring_flags, shards
from xlj.io.malformed import Skipping

if TYPE_CHECKING:  # types only: a command reads its flags without JAX
    import numpy as np

    from xlj.io.parts import Parts
    from xlj.retrieval.pair_files import Unit
    from xlj.retrieval.pair_scores import TextPair


@command.entry("score", __doc__, scoring_flags.add)
def main(flags: Namespace) -> None:
    """Scores stretches of the input into parts, then writes all scores, or what is kept."""
    scoring_flags.check(flags)
    from xlj.io.parts import Parts
    from xlj.retrieval import pair_files

    with contextlib.ExitStack() as stack:
        folder = Path(flags.output)
        shard = flags.shard or (1, 1)
        if not flags.shard:
            near = None if flags.output == "-" else Path(flags.output).resolve().parent
            made = tempfile.TemporaryDirectory(prefix=".xlj-score-", dir=near)
            folder = Path(stack.enter_context(made)) / "parts"
        spool = None if flags.shard else folder.parent
        paths = pair_files.paths(flags.input, flags.source, flags.target, spool)
        units = pair_files.units(paths)
        job = shards.job(flags, list(itertools.chain(*paths)), ("by", "layer", "pooling", "prompt"))
        parts = Parts(folder, job, len(units), ".npy", shard)
        skipping = Skipping(flags.malformed, "--malformed")
        if not flags.shard:
            # Reads everything once before any work, so that no error in it comes late.
            for unit in units:
                for _ in unit.pairs(skipping):
                    pass
        _make(flags, parts, units, skipping)
        skipping.report()
        if not shards.end(parts):
            return
        kept = flags.keep is not None or flags.threshold is not None
        output = flags.output
        if flags.shard:
            output = str(folder / ("kept.tsv" if kept else "scores.txt"))
        _write(flags, output, _all_scores(flags, parts, units), units)


def _make(flags: Namespace, parts: "Parts", units: "Sequence[Unit]", skipping: Skipping) -> None:
    """Scores the parts of this shard that are not there yet; of margins, makes their vectors."""
    left = parts.remaining()
    if not left:
        return
    from tqdm import tqdm

    from xlj.inference import pretrained
    from xlj.retrieval import pair_scores, vector_file

    scorer = pair_scores.PairScorer(
        pretrained.load(flags.checkpoint), flags.by, flags.layer, flags.pooling, flags.prompt
    )
    embedder = scorer.embedder if flags.by == "margin" else None
    width = 2 * embedder.width if embedder else 1
    with tqdm(desc="scoring", unit=" pairs", disable=None) as bar:
        for part in left:
            rows = 0
            pairs = units[part].pairs(skipping)
            with vector_file.writing(parts.file(part), width, "float32") as append:
                made = (
                    pair_scores.vectors(pairs, embedder, bar.update)
                    if embedder
                    else scorer.columns(pairs, bar.update)
                )
                for some in made:
                    append(some)
                    rows += len(some)
            parts.mark_complete(part, **units[part].as_json(), rows=rows)
    scorer.report()


def _all_scores(flags: Namespace, parts: "Parts", units: "Sequence[Unit]") -> "np.ndarray":
    """The scores of all pairs, float32 [pairs], NaN where there is none."""
    import numpy as np

    from xlj.retrieval import pair_scores

    arrays = [np.load(parts.file(part), mmap_mode="r") for part in range(len(units))]
    if flags.by != "margin":
        return pair_scores.join([array[:, 0] for array in arrays])
    width = arrays[0].shape[1] // 2 if arrays else 1
    return pair_scores.margins_of(_every(flags, units), arrays, width)


def _every(flags: Namespace, units: "Sequence[Unit]") -> "Iterator[TextPair]":
    for unit in units:
        yield from unit.pairs(Skipping(flags.malformed, "--malformed"))


def _write(flags: Namespace, output: str, scores: "np.ndarray", units: "Sequence[Unit]") -> None:
    import numpy as np

    from xlj.retrieval import pair_scores

    filters = flags.keep is not None or flags.threshold is not None
    kept = pair_scores.best(scores, flags.keep, flags.threshold)
    with outputs.opened(output) as file:
        assert file is not None
        if not filters:
            for score in _numbers(scores):
                file.write(f"{score:.6f}\n".encode())
        else:
            pairs = _every(flags, units)
            for pair, is_kept, score in zip(pairs, _numbers(kept), _numbers(scores), strict=True):
                if is_kept:
                    more = f"\t{score:.6f}" if flags.scores else ""
                    file.write(f"{pair.line}{more}\n".encode())
    if output != "-":
        what = (
            f"{int(kept.sum()):,} of {len(scores):,} pairs"
            if filters
            else f"{len(scores):,} scores"
        )
        print(f"{output}: {what}", file=sys.stderr)
    empty = int(np.isnan(scores).sum())
    if empty:
        print(f"pairs without a score, because a side is empty: {empty:,}", file=sys.stderr)


def _numbers(array: "np.ndarray") -> "Iterator[Any]":
    """The numbers of an array, of which few are objects at a time."""
    for start in range(0, len(array), 65536):
        yield from array[start : start + 65536].tolist()


if __name__ == "__main__":
    raise SystemExit(main())
