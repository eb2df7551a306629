r"""Searches documents for judged queries, and prints nDCG, MRR and recall.

    python -m xlj.search --checkpoint=DIR --data=scifact
    python -m xlj.search --checkpoint=DIR --data=scifact --query_prompt='query: ' \
        --document_prompt='passage: ' --dimensions=128

--data names a folder in BEIR's form (corpus.jsonl, queries.jsonl, qrels/test.tsv), or with the
files of MIRACL. The command prints the means over the queries as JSON, computed as trec_eval does.
More: docs/search.md
"""

import argparse
import json
from argparse import Namespace
from pathlib import Path

from xlj.cli import command, outputs, sentence_vectors
from xlj.cli.parser import Parser, at_least


def add(parser: Parser) -> None:
    """Adds all flags."""
    add = parser.add_argument
    sentence_vectors.add_flags(parser, has_roles=True)
    add("--data", metavar="DIR", type=Path, required=True, help="folder of a search set")
    add("--split", default="test", help="split of the judgements: qrels/SPLIT.tsv [test]")
    add(
        "--cutoffs",
        metavar="K,K",
        type=_cutoffs,
        default=(10, 100),
        help="ranks at which to compute the scores; the highest is the number of documents to "
        "find for each query [10,100]",
    )
    add(
        "--dimensions",
        metavar="N",
        type=at_least(1),
        help="use only the first N dimensions of the vectors [all]",
    )
    add(
        "--skip_own",
        action="store_true",
        help="leave out the document with the id of the query, as BEIR's own script does (for "
        "ArguAna and Quora, whose queries are documents)",
    )
    sentence_vectors.add_search_flags(
        parser, "find documents with a FAISS index, and print the recall of the four nearest"
    )
    parser.add_file("--output", "file for the found documents, in TREC's form")


def _cutoffs(text: str) -> tuple[int, ...]:
    ranks = tuple(map(int, text.split(",")))
    if min(ranks) < 1:
        raise argparse.ArgumentTypeError(f"{text} has a rank below 1")
    return ranks


@command.entry("search", __doc__, add)
def main(flags: Namespace) -> None:
    """Reads all files, embeds queries and documents, searches, and prints the scores."""
    sentence_vectors.check_search(flags)
    outputs.check_output("output", flags.output, [("checkpoint", flags.checkpoint)])
    import sys

    from xlj.evaluation import metrics
    from xlj.retrieval import beir

    judged = beir.read(flags.data, flags.split)
    for note in judged.notes():
        print(f"{flags.data}: {note}", file=sys.stderr)
    queries, documents = sentence_vectors.load_role_embedders(flags)
    count, recall = max(flags.cutoffs), {}
    if flags.search == "faiss":
        ranking, share = beir.rank_approximately(
            judged, queries, documents, count, flags.skip_own, flags.index or "", flags.probes
        )
        recall = {"recall_at_4": round(share, 4)}
    else:
        ranking = beir.rank(judged, queries, documents, count, flags.skip_own)
    run = beir.run_of(judged, ranking)
    if flags.output:
        beir.write_run(flags.output, run)
    scores = metrics.ranking_scores(run, judged.judgements, flags.cutoffs)
    report = {
        "data": flags.data.name,
        "split": flags.split,
        "layer": queries.layers[0],
        "dimensions": queries.width,
        "query_prompt": queries.prompt,
        "document_prompt": documents.prompt,
        "queries": len(judged.queries),
        "documents": len(judged.documents),
        **recall,
        **metrics.mean_scores(scores),
    }
    print(json.dumps(report, ensure_ascii=False), flush=True)
    for embedder in (queries, documents):
        sentence_vectors.report_truncated(embedder)


if __name__ == "__main__":
    raise SystemExit(main())
