r"""Finds the sentences of two texts that translate each other.

    python -m xlj.mine --checkpoint=DIR --source=de.txt --target=en.txt --output=pairs.tsv \
        --threshold=1.06

The texts have a sentence a line, in any order and number; a line of the output is `source TAB
target`. The threshold can be found on texts whose translations are known: `--gold=FILE` prints the
one of the best F1 (BUCC's task). docs/retrieve.md tells more.
"""

import json
import math
from argparse import Namespace
from typing import TYPE_CHECKING

from xlj.cli import command, mining_flags, sentence_vectors
from xlj.config import ConfigError

if TYPE_CHECKING:  # types only: a command reads its flags without JAX
    from xlj.retrieval.sentence_files import Sentences


@command.entry("mine", __doc__, mining_flags.add)
def main(flags: Namespace) -> None:
    """Embeds both texts, mines, writes, prints."""
    mining_flags.check(flags)
    import numpy as np

    from xlj.evaluation.metrics.pairs import best_threshold, pair_scores
    from xlj.retrieval import mining, sentence_files

    source, target = (sentence_files.read_with_ids(f) for f in (flags.source, flags.target))
    for path, read in ((flags.source, source), (flags.target, target)):
        sentence_vectors.check_centred(flags, path, read.texts)
    gold = _gold(flags, source, target) if flags.gold else None
    embedder = sentence_vectors.embedder(flags)
    places = [mining.distinct(side.texts) for side in (source, target)]
    texts, names = (
        [[of[i] for i in first] for of, first in zip(every, places, strict=True)]
        for every in ((source.texts, target.texts), (_names(source), _names(target)))
    )
    vectors = sentence_vectors.embed(flags, embedder, *texts)
    found = mining.mine(vectors[0][0], vectors[1][0])
    sentence_vectors.report_cut(embedder)
    ends = zip(found.sources.tolist(), found.targets.tolist(), strict=True)
    pairs = [(names[0][i], names[1][j]) for i, j in ends]
    threshold = flags.threshold
    if gold and threshold is None:
        right = np.array([pair in gold for pair in pairs])
        threshold = best_threshold(found.scores, right, len(gold))
    pairs = pairs[: int((found.scores >= threshold).sum())]
    if flags.output:
        mining.write(flags.output, pairs, found.scores.tolist() if flags.scores else None)
    shown = threshold if math.isfinite(threshold) else None  # no pair is right
    printed = {"layer": embedder.layers[0], "threshold": shown, "pairs": len(pairs)}
    if gold:
        printed |= {"gold": len(gold), **pair_scores(pairs, gold)._asdict()}
    print(json.dumps(printed), flush=True)


def _names(side: "Sentences") -> list[str]:
    """What a line of the output calls each sentence."""
    return side.ids or side.texts


def _gold(flags: Namespace, source: "Sentences", target: "Sentences") -> set[tuple[str, str]]:
    from xlj.retrieval import sentence_files

    ids = []
    for path, side in ((flags.source, source), (flags.target, target)):
        if side.ids is None:
            raise ConfigError(f"--gold names ids, but {path} has none; lines are `id TAB sentence`")
        ids.append(side.ids)
    return sentence_files.read_pairs(flags.gold, *ids)


if __name__ == "__main__":
    raise SystemExit(main())
