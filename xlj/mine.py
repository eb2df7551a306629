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
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xlj.cli import command, mining_flags, sentence_vectors, shards
from xlj.config import ConfigError

if TYPE_CHECKING:  # types only: a command reads its flags without JAX
    import numpy as np

    from xlj.retrieval.mining import Pairs
    from xlj.retrieval.sentence_files import Sentences


@command.entry("mine", __doc__, mining_flags.add)
def main(flags: Namespace) -> None:
    """Embeds both texts, mines, writes, prints."""
    mining_flags.check(flags)
    import numpy as np

    from xlj.evaluation.metrics.pairs import best_threshold, pair_scores
    from xlj.io import file_ranges
    from xlj.retrieval import mining, sentence_files
    from xlj.retrieval.nearest import centre

    files = [file_ranges.files_of_flag(name, getattr(flags, name)) for name in ("source", "target")]
    source, target = (sentence_files.read_with_ids(*paths) for paths in files)
    for path, read in ((flags.source, source), (flags.target, target)):
        sentence_vectors.check_centred(flags, path, read.texts)
    gold = _gold(flags, source, target) if flags.gold else None
    whole = None
    if flags.shard:
        whole = _shared_vectors(flags, files)
        if whole is None:
            return
    places = [mining.first_occurrences(side.texts) for side in (source, target)]
    texts, names = (
        [[of[i] for i in first] for of, first in zip(every, places, strict=True)]
        for every in ((source.texts, target.texts), (_names(source), _names(target)))
    )
    if whole is None:
        embedder = sentence_vectors.embedder(flags)
        vectors = [made[0] for made in sentence_vectors.embed(flags, embedder, *texts)]
        sentence_vectors.report_cut(embedder)
    else:
        vectors = [side[first] for side, first in zip(whole, places, strict=True)]
        for side in vectors if flags.centred else ():
            centre(side)
    found, recall = _mined(flags, *vectors)
    ends = zip(found.sources.tolist(), found.targets.tolist(), strict=True)
    pairs = [(names[0][i], names[1][j]) for i, j in ends]
    threshold = flags.threshold
    if gold and threshold is None:
        right = np.array([pair in gold for pair in pairs])
        threshold = best_threshold(found.scores, right, len(gold))
    pairs = pairs[: int((found.scores >= threshold).sum())]
    if flags.output:
        output = flags.output / "pairs.tsv" if flags.shard else flags.output
        mining.write(output, pairs, found.scores.tolist() if flags.scores else None)
    shown = threshold if math.isfinite(threshold) else None  # no pair is right
    printed = {
        "layer": flags.layer if whole else embedder.layers[0],
        "threshold": shown,
        "pairs": len(pairs),
        **recall,
    }
    if gold:
        printed |= {"gold": len(gold), **pair_scores(pairs, gold)._asdict()}
    print(json.dumps(printed), flush=True)


def _mined(
    flags: Namespace, source: "np.ndarray", target: "np.ndarray"
) -> tuple["Pairs", dict[str, float]]:
    """The pairs by the search that is asked for; of FAISS, what it finds of the exact one."""
    from xlj.retrieval import candidates, mining

    if flags.search == "exact":
        return mining.mine(source, target), {}
    of_target = candidates.approximate(target, flags.index or "", flags.probes)
    recall = candidates.recall(of_target, source, target)
    targets = candidates.search_chunks(of_target, source)
    del of_target  # one index at a time
    of_source = candidates.approximate(source, flags.index or "", flags.probes)
    sources = candidates.search_chunks(of_source, target)
    found = mining.select_pairs(candidates.by_margin(targets, sources))
    return found, {"recall_at_4": round(recall, 4)}


def _shared_vectors(
    flags: Namespace, files: Sequence[Sequence[Path]]
) -> "tuple[np.ndarray, np.ndarray] | None":
    """Embeds the parts of this shard that are not there yet; the vectors of both sides, once all
    shards are done."""
    import numpy as np

    from xlj.io import file_ranges
    from xlj.io.parts import Parts

    sides = [file_ranges.split_files(paths) for paths in files]
    units = [*sides[0], *sides[1]]
    job = shards.job(flags, [*files[0], *files[1]], ("layer", "pooling", "prompt"))
    parts = Parts(flags.output, job, len(units), ".npy", flags.shard)
    sentence_vectors.embed_parts(flags, parts, units, "float32", has_ids=True)
    if not shards.end(parts):
        return None
    loaded = [np.load(parts.file(part)) for part in range(len(units))]
    first = len(sides[0])
    return np.concatenate(loaded[:first]), np.concatenate(loaded[first:])


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
