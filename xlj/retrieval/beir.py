"""Search with judged queries: reads folders in the forms of BEIR and MIRACL, and ranks documents.

    FOLDER/corpus.jsonl        {"_id": ..., "title": ..., "text": ...}; MIRACL: docs-*.jsonl
    FOLDER/queries.jsonl       {"_id": ..., "text": ...}; MIRACL: topics/*-SPLIT.tsv, `id TAB text`
    FOLDER/qrels/SPLIT.tsv     a header, then `query id TAB document id TAB grade`; MIRACL:
                               qrels/*-SPLIT.tsv in TREC's form, `query id, Q0, document id, grade`

All files may be compressed. `evaluation.metrics.ranking_scores` scores the rankings.
Sources: Thakur et al. (2021), "BEIR"; Zhang et al. (2023), "MIRACL"; their published files.
"""

import itertools
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.io import atomic, compressed, json_file
from xlj.io.json_file import Json
from xlj.io.quoting import quoted, shortened
from xlj.retrieval import mining, search, sentence_files
from xlj.retrieval.sentence_embedder import SentenceEmbedder

BLOCK = 65536
"""The number of documents whose text and vectors are in memory at a time."""
_IDS = ("_id", "docid", "id")  # the keys of ids in BEIR's, MIRACL's and other JSON lines
_HEADER = ("query-id", "corpus-id")  # the first columns of a file of judgements in BEIR's form

Judgements = dict[str, dict[str, int]]
"""The grades of judged documents: by id of the query, by id of the document. A document with a
grade of at least 1 is relevant."""


class SearchSet(NamedTuple):
    """The queries of a split, and the ids of all documents.

    Attributes:
      queries: the texts of the queries that have judgements, by id.
      judgements: of all queries in the split, also of queries without text.
      documents: the ids of the documents, in the order of the files.
      corpus: the files of the documents.
      empty: the number of documents without text.
      own: the number of queries whose text is the document with the same id.
    """

    queries: dict[str, str]
    judgements: Judgements
    documents: list[str]
    corpus: list[Path]
    empty: int
    own: int

    def notes(self) -> list[str]:
        """Returns a line for each property of the files that a reader of the scores must know."""
        known = set(self.documents)
        unknown = sum(name not in known for grades in self.judgements.values() for name in grades)
        lines = (
            (len(self.judgements) - len(self.queries), "judged queries have no text: left out"),
            (unknown, "judged documents are not in the corpus: never found"),
            (self.empty, "documents have no text"),
            (self.own, "queries are documents with the same id; --skip_own leaves these out"),
        )
        return [f"{count:,} {what}" for count, what in lines if count]


class Ranking(NamedTuple):
    """The documents of each query, best first; equal scores in descending order of ids.

    Attributes:
      scores: float32 [queries, count], cosines; -inf where fewer documents were found.
      documents: int64 [queries, count], indices of documents.
    """

    scores: np.ndarray
    documents: np.ndarray


Run = dict[str, dict[str, float]]
"""The scores of the found documents: by id of the query, by id of the document, best first."""


def read(folder: Path, split: str = "test") -> SearchSet:
    """Reads and checks all files of a folder. Only ids of documents stay in memory.

    Raises:
      ConfigError: if a file is missing or malformed, an id occurs twice, or no query of the split
        has both text and judgements. The message names the file and the line.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder")
    corpus = _find(folder, ("corpus.jsonl",), ("docs-*.jsonl",))
    queries_files = _find(folder, ("queries.jsonl",), (f"topics/*-{split}.tsv",))
    judgement_files = _find(folder, (f"qrels/{split}.tsv",), (f"qrels/*-{split}.tsv",))
    judgements = _read_judgements(judgement_files[0])
    texts: dict[str, str] = {}
    for name, text, place in _read_queries(queries_files[0]):
        if not text:
            raise ConfigError(f"{place}: the query {shortened(name)} is blank")
        if name in texts:
            raise ConfigError(f"{place}: the query id {shortened(name)} occurs twice")
        texts[name] = text
    queries = {name: texts[name] for name in judgements if name in texts}
    if not queries:
        raise ConfigError(
            f"{queries_files[0]}: none of its {len(texts):,} queries is judged in "
            f"{judgement_files[0]}; expected the same query ids in both files"
        )
    documents: dict[str, None] = {}  # a set that keeps the order
    empty = own = 0
    for name, text, place in _read_documents(corpus):
        if name in documents:
            raise ConfigError(f"{place}: the document id {shortened(name)} occurs twice")
        documents[name] = None
        empty, own = empty + (not text), own + (text == queries.get(name))
    if not documents:
        raise ConfigError(f"{corpus[0]} has no documents")
    return SearchSet(queries, judgements, list(documents), corpus, empty, own)


def splits(folder: Path) -> list[str]:
    """Returns the names of the splits of a folder in BEIR's form; none for another folder."""
    found = (path.name.partition(".tsv")[0] for path in sorted(folder.glob("qrels/*.tsv*")))
    return list(found) if any(folder.glob("corpus.jsonl*")) else []


def rank(
    judged: SearchSet,
    queries: SentenceEmbedder,
    documents: SentenceEmbedder,
    count: int,
    skip_own: bool = False,
    block: int = BLOCK,
    with_bar: bool | None = None,
) -> Ranking:
    """Finds the `count` nearest documents of each query by exact search.

    The memory of the host and the device does not grow with the number of documents, except for
    their ids.

    Args:
      queries, documents: embed the queries and the documents.
      skip_own: whether to leave out the document with the id of the query.
      block: the number of documents that are embedded and searched at a time.
      with_bar: whether to show progress bars; None shows bars on terminals only.

    Raises:
      ConfigError: if a vector is not finite.
    """
    vectors = _embed_queries(judged, queries, with_bar)
    places = _descending(judged.documents)
    scores, numbers = np.zeros((len(vectors), 0), np.float32), np.zeros((len(vectors), 0), np.int64)
    done = 0
    for of_block in _vectors(judged, documents, block, with_bar):
        # Of equal cosines, the search returns the lowest index: here the highest id.
        order = np.argsort(places[done : done + len(of_block)])
        found = search.neighbours(vectors, of_block[order], count + skip_own)
        scores, numbers = _best(
            np.concatenate([scores, found.scores], 1),
            np.concatenate([numbers, order[found.indices] + done], 1),
            places,
            count + skip_own,
        )
        done += len(of_block)
    return _finish(judged, scores, numbers, places, count, skip_own)


def rank_approximately(
    judged: SearchSet,
    queries: SentenceEmbedder,
    documents: SentenceEmbedder,
    count: int,
    skip_own: bool = False,
    index: str = "",
    probes: int = 32,
) -> tuple[Ranking, float]:
    """Finds documents with a FAISS index; the vectors are in a temporary file meanwhile.

    Args:
      queries, documents, count, skip_own: the arguments of `rank`.
      index, probes: the arguments `kind` and `probes` of `mining.build_search`.

    Returns:
      The ranking, and the recall of the four nearest documents (`mining.recall`).

    Raises:
      ConfigError: if FAISS is not installed, or a vector is not finite.
    """
    vectors, places = _embed_queries(judged, queries), _descending(judged.documents)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "documents.npy")
        with sentence_files.writing_vectors(file, documents.width, "float32") as append:
            for part in _vectors(judged, documents, BLOCK):
                append(part)
        keys = np.load(file, mmap_mode="r")
        find = mining.build_search(keys, index, probes, count + skip_own)
        found, recall = mining.search_chunks(find, vectors), mining.recall(find, vectors, keys)
    return _finish(judged, *found, places, count, skip_own), recall


def run_of(judged: SearchSet, ranking: Ranking) -> Run:
    """Returns a ranking as ids and scores."""
    rows = zip(judged.queries, ranking.scores.tolist(), ranking.documents.tolist(), strict=True)
    return {
        query: {
            judged.documents[document]: score
            for score, document in zip(scores, documents, strict=True)
            if score > -np.inf
        }
        for query, scores, documents in rows
    }


def write_run(path: Path, run: Run) -> None:
    """Writes a ranking in TREC's form: `query id, Q0, document id, rank, score, xlj`.

    Raises:
      ConfigError: if an id contains a space, which separates columns.
    """
    for name in itertools.chain(run, *run.values()):
        if name.split() != [name]:
            raise ConfigError(
                f"{path}: the id {quoted(name)} has spaces, which TREC's form forbids"
            )
    with atomic.writing(path) as file:
        for query, scores in run.items():
            for place, (document, score) in enumerate(scores.items(), 1):
                file.write(f"{query} Q0 {document} {place} {score!r} xlj\n".encode())


def _find(folder: Path, *patterns: tuple[str, ...]) -> list[Path]:
    """Returns the files of the first pattern that matches a file, in order of their numbers.

    Raises:
      ConfigError: if no file matches, or several match a pattern of one file.
    """
    names = [pattern for alternatives in patterns for pattern in alternatives]
    endings = ("", *compressed.ENDINGS)
    for pattern in names:
        found = sorted(path for end in endings for path in folder.glob(f"{pattern}{end}"))
        if len(found) > 1 and not pattern.startswith("docs-"):
            raise ConfigError(f"{folder}: expected one file {pattern}, but there are {len(found)}")
        if found:
            return sorted(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)])
    expected = " or ".join(names)
    raise ConfigError(f"{folder}: there is no file {expected} (or .gz, ...), as in BEIR or MIRACL")


def _read_judgements(path: Path) -> Judgements:
    judgements: Judgements = {}
    for number, line in enumerate(sentence_files.lines(path), 1):
        row = line.split("\t") if "\t" in line else line.split()
        place = f"{path}:{number}"
        if not line or (number == 1 and tuple(row[:2]) == _HEADER):
            continue
        if len(row) not in (3, 4):
            raise ConfigError(
                f"{place}: {len(row)} columns; expected `query id TAB document id TAB grade`, or "
                "TREC's four columns `query id, Q0, document id, grade`"
            )
        query, document, grade = row[0], row[-2], row[-1]
        if not re.fullmatch(r"-?[0-9]{1,9}", grade):
            raise ConfigError(f"{place}: the grade is {quoted(grade)}; expected a whole number")
        if judgements.setdefault(query, {}).setdefault(document, int(grade)) != int(grade):
            raise ConfigError(
                f"{place}: {shortened(document)} has two different grades for the query "
                f"{shortened(query)}; remove one of the lines"
            )
    if not judgements:
        raise ConfigError(f"{path} has no judgements")
    return judgements


def _read_queries(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yields the id, the text and the place FILE:LINE of each query."""
    if ".jsonl" in path.name:
        for record, place in json_file.values(path):
            yield _id(record, place), json_file.text(place, record, "text", "").strip(), place
        return
    for number, line in enumerate(sentence_files.lines(path), 1):
        name, tab, text = line.partition("\t")
        if line and not tab:
            raise ConfigError(f"{path}:{number}: no tab; expected `query id TAB text`")
        if line:
            yield name, text.strip(), f"{path}:{number}"


def _read_documents(paths: Iterable[Path]) -> Iterator[tuple[str, str, str]]:
    """Yields the id, the title and text, and the place FILE:LINE of each document."""
    for path in paths:
        for record, place in json_file.values(path):
            title = ""
            if isinstance(record, dict) and record.get("title") is not None:
                title = json_file.text(place, record, "title", "")
            text = json_file.text(place, record, "text", "")
            yield _id(record, place), f"{title} {text}".strip(), place


def _id(record: Json, place: str) -> str:
    names = [record[key] for key in _IDS if key in record] if isinstance(record, dict) else []
    if not names or isinstance(names[0], bool) or not isinstance(names[0], str | int):
        raise ConfigError(f"{place}: expected an object with an id: {{'_id': ..., 'text': ...}}")
    name = f"{names[0]}"
    if not name or name != name.strip() or "\t" in name or not json_file.is_text(name):
        raise ConfigError(f"{place}: the id is {quoted(name)}; expected text without tabs")
    return name


def _descending(names: Sequence[str]) -> np.ndarray:
    """Returns the place of each id in descending order, int64 [ids].

    trec_eval compares bytes of UTF-8, whose order is the order of code points.
    """
    places = np.empty(len(names), np.int64)
    places[sorted(range(len(names)), key=names.__getitem__, reverse=True)] = np.arange(len(names))
    return places


def _embed_queries(
    judged: SearchSet, embedder: SentenceEmbedder, with_bar: bool | None = None
) -> np.ndarray:
    return _finite(embedder.embed(list(judged.queries.values()), with_bar)[0])


def _vectors(
    judged: SearchSet, embedder: SentenceEmbedder, block: int, with_bar: bool | None = None
) -> Iterator[np.ndarray]:
    """Yields the vectors of the next `block` documents, float32 [n, width]."""
    texts = (text for _, text, _ in _read_documents(judged.corpus))
    while part := list(itertools.islice(texts, block)):
        yield _finite(embedder.embed(part, with_bar)[0])


def _finite(vectors: np.ndarray) -> np.ndarray:
    if not np.isfinite(vectors).all():
        raise ConfigError("a vector is not finite; check the weights of the model")
    return vectors


def _best(scores: np.ndarray, documents: np.ndarray, places: np.ndarray, count: int) -> Ranking:
    """Returns the `count` best documents of each row, sorted as in `Ranking`.

    Args:
      places: the places of all ids in descending order.
    """
    order = np.lexsort((places[documents], -scores), axis=-1)[:, :count]
    return Ranking(*(np.take_along_axis(values, order, 1) for values in (scores, documents)))


def _finish(
    judged: SearchSet,
    scores: np.ndarray,
    documents: np.ndarray,
    places: np.ndarray,
    count: int,
    skip_own: bool,
) -> Ranking:
    """Sorts the found documents, after it removes the document with the id of the query."""
    if skip_own:
        numbers = {name: number for number, name in enumerate(judged.documents)}
        own = np.array([numbers.get(query, -1) for query in judged.queries])[:, None]
        scores = np.where(documents == own, np.float32(-np.inf), scores)
    return _best(scores.astype(np.float32), documents, places, count)
