"""`xlj.search`: scores as JSON, prompts of roles, dimensions, and TREC's files."""

import json

import numpy as np
import pytest

import xlj
from xlj import phrasebook, search
from xlj.config import ConfigError
from xlj.evaluation import metrics
from xlj.inference import pretrained
from xlj.interop.sentence_modules import SentenceModules


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A search set: each query is one of 40 documents with another word; grades are 1 or 3."""
    folder = tmp_path_factory.mktemp("sets") / "phrases"
    (folder / "qrels").mkdir(parents=True)
    texts = sorted({phrasebook.pair(phrasebook.draw(7, k), "en", "de").source.text
                    for k in range(60)})[:40]  # fmt: skip
    records = {
        "corpus": [{"_id": f"d{n}", "text": text} for n, text in enumerate(texts)],
        "queries": [{"_id": f"q{n}", "text": f"{texts[n]} So."} for n in range(12)],
    }
    for name, lines in records.items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)
    lines = [f"q{n}\td{n}\t3\nq{n}\td{n + 20}\t1\n" for n in range(12)]
    (folder / "qrels/dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    return folder


@pytest.mark.parametrize("method", ["exact", "faiss"])
def test_scores_of_a_folder(call, checkpoint, folder, tmp_path, method):
    if method == "faiss":
        pytest.importorskip("faiss")
    printed = call(
        search.main, f"--checkpoint={checkpoint}", f"--data={folder}", "--split=dev",
        "--query_prompt=Ask: ", "--dimensions=16", "--cutoffs=1,5", "--layer=2",
        f"--search={method}", f"--output={tmp_path / 'run'}",
    )  # fmt: skip
    report = json.loads(printed.out)
    queries, documents = (
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("queries", "corpus")
    )
    encoder = xlj.load(checkpoint)
    sides = (
        encoder.embed([f"Ask: {query['text']}" for query in queries], layer=2),
        encoder.embed([document["text"] for document in documents], layer=2),
    )
    cosines = encoder.similarity(*(side[:, :16] for side in sides))
    order = np.argsort(-cosines, axis=1)[:, :5]
    run = {f"q{n}": {f"d{d}": float(cosines[n, d]) for d in row} for n, row in enumerate(order)}
    judged = {f"q{n}": {f"d{n}": 3, f"d{n + 20}": 1} for n in range(12)}
    expected = metrics.mean_scores(metrics.ranking_scores(run, judged, (1, 5)))
    assert {name: report[name] for name in expected} == pytest.approx(expected, abs=1e-9)
    assert 0 < report["ndcg@5"] < 1 and report.get("recall_at_4", 1) == 1
    assert {name: report[name] for name in list(report)[:8]} == {
        "data": "phrases", "split": "dev", "layer": 2, "dimensions": 16, "query_prompt": "Ask: ",
        "document_prompt": "", "queries": 12, "documents": 40,
    }  # fmt: skip
    lines = [line.split() for line in (tmp_path / "run").read_text().splitlines()]
    assert [line[:4] for line in lines[:5]] == [
        ["q0", "Q0", name, f"{place}"] for place, name in enumerate(run["q0"], 1)
    ]
    assert not printed.err.replace("\n", "")


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--dimensions=1000"], "dimensions=1000: the vectors have only"),
        (["--cutoffs=5,0"], "5,0 has a rank below 1"),
        (["--index=Flat"], "--index needs --search=faiss"),
        (["--data=/nowhere"], "/nowhere: there is no such folder"),
        (["--split=test"], "there is no file qrels/test.tsv"),
    ],
)
def test_wrong_flags_are_errors(call, checkpoint, folder, flags, message):
    arguments = [f"--checkpoint={checkpoint}", f"--data={folder}", "--split=dev", *flags]
    with pytest.raises(ConfigError) as error:
        call(search.main, *arguments)
    assert message in str(error.value)


def test_roles_use_the_prompts_of_the_folder(checkpoint):
    loaded = pretrained.load(checkpoint)

    def prompts(names, **options):
        modules = SentenceModules(settings={"prompts": names, "default_prompt_name": "other"})
        encoder = xlj.Encoder(loaded._replace(sentence=modules))
        roles = ("query", "document")
        return [encoder.role_embedder(role, **options).prompt for role in roles]

    assert prompts({"query": "q: ", "passage": "p: ", "other": "o"}) == ["q: ", "p: "]
    assert prompts({"document": "", "corpus": "c: ", "other": "o"}) == ["", "c: "]
    assert prompts({"query": "q: ", "other": "o"}, layers=[2]) == ["", ""]
    assert prompts({"query": "q: ", "other": "o"}, prompt_text="x ") == ["x ", "x "]
