"""Search in BEIR's and MIRACL's folders: files, their errors, and rankings by blocks."""

import gzip
import json

import numpy as np
import pytest

from xlj.config import ConfigError
from xlj.retrieval import beir

CORPUS = [
    {"_id": "d1", "title": "Cats", "text": "They sleep."},
    {"_id": "d10", "title": None, "text": "Dogs bark."},
    {"_id": 7, "text": " "},
]
QUERIES = [{"_id": "q1", "text": "cat?"}, {"_id": "d10", "text": "Dogs bark."}]
JUDGED = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\tgone\t1\nd10\t7\t0\nq3\td1\t1\n"


def write(folder, corpus=CORPUS, queries=QUERIES, judged=JUDGED, split="test"):
    """Writes a folder in BEIR's form."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, records in (("corpus", corpus), ("queries", queries)):
        text = records if isinstance(records, str) else "".join(map(line, records))
        (folder / f"{name}.jsonl").write_text(text)
    (folder / f"qrels/{split}.tsv").write_text(judged)
    return folder


def line(record):
    return json.dumps(record) + "\n"


def test_a_folder_in_the_form_of_beir(tmp_path):
    judged = beir.read(write(tmp_path))
    assert judged.queries == {"q1": "cat?", "d10": "Dogs bark."}
    assert judged.documents == ["d1", "d10", "7"]
    assert judged.judgements == {"q1": {"d1": 2, "gone": 1}, "d10": {"7": 0}, "q3": {"d1": 1}}
    texts = [text for _, text, _ in beir._read_documents(judged.corpus)]
    assert texts == ["Cats They sleep.", "Dogs bark.", ""]
    assert [note.split(":")[0] for note in judged.notes()] == [
        "1 judged queries have no text",
        "1 judged documents are not in the corpus",
        "1 documents have no text",
        "1 queries are documents with the same id; --skip_own leaves these out",
    ]
    assert beir.splits(tmp_path) == ["test"]


def test_the_files_of_miracl(tmp_path):
    for number in (10, 9):
        record = {"docid": f"{number}#0", "title": "T", "text": f"text {number}"}
        with gzip.open(tmp_path / f"docs-{number}.jsonl.gz", "wt") as file:
            file.write(line(record))
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics/topics.miracl-v1.0-sw-dev.tsv").write_text("5\tMaswali gani?\n")
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels/qrels.miracl-v1.0-sw-dev.tsv").write_text("5\tQ0\t9#0\t1\n5 Q0 10#0 0\n")
    judged = beir.read(tmp_path, "dev")
    assert judged.documents == ["9#0", "10#0"] and judged.queries == {"5": "Maswali gani?"}
    assert judged.judgements == {"5": {"9#0": 1, "10#0": 0}} and not judged.notes()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"split": "dev"}, "there is no file qrels/test.tsv or qrels/*-test.tsv"),
        ({"corpus": '{"_id": "a"}\n'}, r"corpus.jsonl:1: .text is None, expected a text"),
        ({"corpus": '{"text": "a"}\n'}, "corpus.jsonl:1: expected an object with an id"),
        ({"corpus": line(CORPUS[0]) * 2}, "corpus.jsonl:2: the document id d1 occurs twice"),
        ({"corpus": "\n"}, "corpus.jsonl has no documents"),
        ({"queries": line(QUERIES[0]) * 2}, "queries.jsonl:2: the query id q1 occurs twice"),
        ({"queries": [{"_id": "q1", "text": " "}]}, "queries.jsonl:1: the query q1 is blank"),
        ({"queries": [{"_id": "other", "text": "a"}]}, "none of its 1 queries is judged in"),
        ({"judged": "query-id\tcorpus-id\tscore\n"}, "test.tsv has no judgements"),
        ({"judged": "q1\td1\t0.5\n"}, "test.tsv:1: the grade is '0.5'; expected a whole number"),
        ({"judged": "q1\td1\n"}, "test.tsv:1: 2 columns; expected `query id TAB document id"),
        ({"judged": "q1\td1\t1\nq1\td1\t2\n"}, "test.tsv:2: d1 has two different grades"),
    ],
)
def test_malformed_files_are_errors(tmp_path, changes, message):
    write(tmp_path, **changes)
    with pytest.raises(ConfigError) as error:
        beir.read(tmp_path)
    assert message in str(error.value)


class Table:
    """An `Embedder` whose vectors are given by the text."""

    def __init__(self, vectors):
        self._vectors, self.width = vectors, 3

    def embed(self, texts, with_bar=None):
        return np.array([[self._vectors[text] for text in texts]], np.float32)


@pytest.fixture
def many(tmp_path):
    """A set with 23 documents whose vectors are often equal, and the embedder of all texts."""
    rng = np.random.default_rng(0)
    # Unit vectors: the cosines with equal vectors are equal to the last bit, also in other blocks.
    kinds = np.concatenate([np.eye(3), -np.eye(3)])[:5]
    names = [f"{n}" for n in rng.permutation(23)]  # as ids: "10" is before "9"
    corpus = [{"_id": name, "text": f"text {name}"} for name in names]
    queries = [{"_id": f"{n}", "text": f"query {n}"} for n in (3, 15, 99)]
    judged = "".join(f"{record['_id']}\t3\t1\n" for record in queries)
    vectors = {f"text {name}": kinds[int(name) % 5] for name in names}
    vectors |= {record["text"]: rng.normal(size=3) for record in queries}
    return beir.read(write(tmp_path / "many", corpus, queries, judged)), Table(vectors)


def reference(judged, table, count, skip_own):
    """Sorts all documents by (cosine, id), descending."""
    expected = {}
    for query, text in judged.queries.items():
        vector = table.embed([text])[0, 0]
        scored = []
        for name in judged.documents:
            other = table.embed([f"text {name}"])[0, 0]
            cosine = vector @ other / np.linalg.norm(vector) / np.linalg.norm(other)
            scored.append((round(float(cosine), 5), name))
        ranked = [name for _, name in sorted(scored, reverse=True)]
        expected[query] = [name for name in ranked if not (skip_own and name == query)][:count]
    return expected


@pytest.mark.parametrize(
    "block, count, skip_own", [(4, 50, False), (10, 7, True), (12, 1, False), (100, 50, True)]
)
def test_rankings_do_not_depend_on_blocks_and_ties_go_to_the_highest_id(
    many, block, count, skip_own
):
    judged, table = many
    run = beir.run_of(judged, beir.rank(judged, table, table, count, skip_own, block))
    expected = reference(judged, table, count, skip_own)
    assert {query: list(scores) for query, scores in run.items()} == expected
    for scores in run.values():
        assert sorted(scores.values(), reverse=True) == list(scores.values())


def test_faiss_finds_the_same_documents(many):
    pytest.importorskip("faiss")
    judged, table = many
    ranking, recall = beir.rank_approximately(judged, table, table, 9, skip_own=True)
    exact = beir.rank(judged, table, table, 23, skip_own=True)
    found, all_scores = beir.run_of(judged, ranking), beir.run_of(judged, exact)
    for query, scores in found.items():
        assert len(scores) == 9 and query not in scores
        best = list(all_scores[query].values())[:9]
        assert list(scores.values()) == pytest.approx(best, abs=1e-5)
        assert all(all_scores[query][name] == pytest.approx(s) for name, s in scores.items())
    assert 0.5 < recall <= 1


def test_a_run_in_the_form_of_trec(tmp_path):
    beir.write_run(tmp_path / "run", {"q": {"b": 0.5, "a": 0.25}})
    assert (tmp_path / "run").read_text() == "q Q0 b 1 0.5 xlj\nq Q0 a 2 0.25 xlj\n"
    with pytest.raises(ConfigError, match="the id 'a b' has spaces"):
        beir.write_run(tmp_path / "run", {"q": {"a b": 1.0}})
