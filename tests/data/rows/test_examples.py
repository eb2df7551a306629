"""Rows of examples of sentence encoders, from each format, equal their records."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import xlj
from xlj import config as schema
from xlj.checkpoints import metrics
from xlj.config import ConfigError, parse, row_kinds
from xlj.conversion import exporting
from xlj.data.rows.batches import Batches
from xlj.data.rows.preparing import open_rows, prepare_rows
from xlj.data.rows.report import report
from xlj.data.text import examples
from xlj.data.text.cleaning import line_hashes
from xlj.data.text.held_out import Rule
from xlj.data.tokenizer.layout import BOS, EOS, PAD, UNK, Ragged
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.models import encoder, segments
from xlj.training import loop, start

LENGTH = 64


def example(n, language):
    """A query, its positive, up to 3 negatives, and their scores."""
    negatives = [f"no dog number {k} of {(7 * n) % 300}" for k in range(n % 4)]
    long = " and a very long tail" * (12 if n == 5 else 0)
    return {
        "query": f"who saw {n} cats in {language}",
        "pos": [f"{n} cats were seen by {language}{long}"],
        "neg": negatives,
        "pos_scores": [n / 10],
        "neg_scores": [-k / 4 for k in range(len(negatives))],
    }


@pytest.fixture
def own(tmp_path):
    """A config that reads BGE's JSON lines, sentence-transformers' Parquet, and a table."""
    languages = ("en", "de")
    lines = [example(n, language) for n in range(300) for language in languages]
    for line, language in zip(lines, languages * 300, strict=True):
        line["lang"] = language
    (tmp_path / "bge.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines), "utf-8")
    records = [example(n, "de") for n in range(300, 400)]
    columns = {
        "anchor": [x["query"] for x in records],
        "positive": [x["pos"][0] for x in records],
        **{f"negative_{k + 1}": [[*x["neg"], "", "", ""][k] for x in records] for k in range(3)},
        "scores": [[*x["pos_scores"], *[*x["neg_scores"], 0, 0, 0][:3]] for x in records],
    }
    pa.parquet.write_table(pa.table(columns), tmp_path / "de.parquet", row_group_size=30)
    config = schema.default()
    data = config.data
    data.languages = "en,de"
    data.examples = f"{tmp_path}/bge.jsonl[lang={{language}}],st@{tmp_path}/{{language}}.parquet"
    data.cache, data.vocabulary_size, data.passage_length = str(tmp_path / "rows"), 90, LENGTH
    data.held_out_share, config.model.positions = 0.1, 130
    config.model.layers, config.model.hidden = 1, 16
    config.model.heads, config.model.intermediate = 2, 32
    contrast = config.objectives.contrast
    contrast.batch_size, contrast.loss, contrast.negatives = 8, "margin_mse", 2
    contrast.query_length, contrast.query_prompt = 40, "query: "
    contrast.passage_prompt = "p: "
    contrast.dense, contrast.dimensions = 12, "8=0.5"
    config.train.steps, config.train.eval_rows, config.train.log_every = 3, 5, 1
    config.train.eval_every = 3
    return config


def texts_of(tokens):
    """Returns the ids of each `<s> A </s>` of a row."""
    ids = [int(x) for x in tokens if x != PAD]
    starts = [n for n, x in enumerate(ids) if x == BOS] + [len(ids)]
    texts = [ids[a:b] for a, b in zip(starts, starts[1:], strict=False)]
    assert all(text[-1] == EOS for text in texts)
    return [tuple(text[1:-1]) for text in texts]


def examples_in(rows):
    """Yields (query, positive, negatives, scores) of rows, as ids."""
    slots = rows["score"].shape[1]
    for row in range(len(rows["query"])):
        queries, positives = (texts_of(rows[name][row]) for name in ("query", "positive"))
        given = [texts_of(x) for x in rows["negatives"][row]]
        for slot, pair in enumerate(zip(queries, positives, strict=True)):
            places = [
                (k, n * slots + k, texts[k])
                for n, texts in enumerate(given)
                for k in range(len(texts))
                if rows["owners"][row, n * slots + k] == slot
            ]
            scores = [rows["score"][row, slot]]
            scores += [rows["negative_scores"][row, place] for _, place, _ in places]
            yield *pair, tuple(text for *_, text in places), [round(float(x), 4) for x in scores]


@pytest.mark.slow
def test_rows_of_each_format_equal_their_records_and_train(own, tmp_path):
    parsed = parse(own)
    store = prepare_rows(parsed)
    names = [task.name for task in store.tasks("examples")]
    assert names == ["examples.en", "examples.de", "examples.de.st"]
    vocabulary = Vocabulary.load(store.vocabulary_file)

    def encoded(text, prompt, longest):
        (ids,) = vocabulary.encode_batch([prompt + text])
        return tuple(ids)[: longest - 2]

    for task, language, numbers in zip(
        store.tasks("examples"), ("en", "de", "de"), (range(300), range(300), range(300, 400)),
        strict=True,
    ):  # fmt: skip
        expected = []
        for n in numbers:
            record = example(n, language)
            given = record["neg"][:2]
            expected.append((
                encoded(record["query"], "query: ", 40),
                encoded(record["pos"][0], "p: ", LENGTH),
                tuple(encoded(text, "p: ", LENGTH) for text in given),
                [round(x, 4) for x in (*record["pos_scores"], *record["neg_scores"][:2])],
            ))  # fmt: skip
        actual = []
        for split in ("train", "held_out"):
            count = getattr(task, split).rows
            actual += examples_in(store.read(task.name, split, np.arange(count)))
        assert sorted(actual) == sorted(expected) and 0 < task.held_out.sentences < 60
        assert task.text.cut == (5 in numbers)
        beyond = sum(n % 4 == 3 for n in numbers)
        assert task.text.malformed["negatives beyond the first 2"][0] == beyond
    blank = store.tasks("examples")[2].text.malformed["blank negatives"][0]
    assert blank == sum(3 - n % 4 for n in range(300, 400))
    text = report(store, parsed.data)
    assert "negatives beyond the first 2" in text

    batches = Batches(store, parsed)
    whole = batches.read("contrast", 1, np.arange(8))
    parts = [batches.read("contrast", 1, np.arange(n, 8, 2)) for n in range(2)]
    for name, values in whole.items():
        np.testing.assert_array_equal(values[0::2], parts[0][name])
        np.testing.assert_array_equal(values[1::2], parts[1][name])
    own.objectives.contrast.one_source = True
    batches, owners = Batches(store, parse(own)), []
    for step in range(64):
        names = {name for name, _ in batches.draw("contrast", step, np.arange(8))}
        owners += names
        assert len(names) == 1
        parts = [batches.draw("contrast", step, np.arange(n, 8, 2)) for n in range(2)]
        whole = batches.draw("contrast", step, np.arange(8))
        assert whole[0::2] == parts[0] and whole[1::2] == parts[1]
    assert set(owners) == {"examples.en", "examples.de", "examples.de.st"}
    own.objectives.contrast.one_source = False
    outcome = loop.train(start.prepare(parsed, tmp_path / "run"))
    assert outcome.finished
    lines = metrics.read(tmp_path / "run")
    assert {f"eval/contrast/{x}/loss" for x in ("en", "de", "de.st")} <= lines[-1].keys()
    exporting.export(str(tmp_path / "run"), tmp_path / "exported")
    trained, exported = xlj.load(tmp_path / "run"), xlj.load(tmp_path / "exported")
    texts = ["who saw 3 cats", "cats"]
    tokens = {
        prompt: [[BOS, *ids, EOS] for ids in vocabulary.encode_batch([prompt + x for x in texts])]
        for prompt in ("", "query: ", "p: ")
    }
    params = trained.pretrained.params
    for prompt, name, size in (("", None, 12), ("query: ", "query", 12), ("p: ", "document", 8)):
        vectors = trained.encode(texts, prompt_name=name, truncate_dim=size)
        for vector, ids in zip(vectors, tokens[prompt], strict=True):
            inputs = segments.whole_examples(
                trained.pretrained.model, np.array([ids]), np.zeros((1, 2), int)
            )
            hidden = encoder.apply(params, trained.pretrained.model, inputs, None)
            mean = np.asarray(hidden)[0].mean(0) @ np.asarray(params["sentence"]["0"]["kernel"])
            expected = (mean / np.linalg.norm(mean))[:size]
            np.testing.assert_allclose(vector, expected, atol=1e-5)
        of_folder = exported.encode(texts, prompt_name=name, truncate_dim=size)
        np.testing.assert_allclose(of_folder, vectors, atol=1e-5)
    settings = json.loads((tmp_path / "exported/config_sentence_transformers.json").read_bytes())
    assert settings["prompts"] == {"query": "query: ", "document": "p: "}
    assert settings["matryoshka_dimensions"] == [8, 12]
    own.objectives.contrast.query_prompt = ""
    assert prepare_rows(parse(own)).path != store.path
    own.data.rows, own.data.examples = store.path.name, ""
    assert open_rows(parse(own))[0].data.languages == ("en", "de")


BAD = [
    ("a.jsonl", '{"query": "a"}', "line 1 has no field positive or pos or sentence2"),
    ("a.jsonl", '{"query": "a", "pos": [1]}', "line 1: field pos is not a text"),
    ("a.jsonl", '{"query": "a", "pos": []}', "line 1: field pos is blank"),
    ("a.jsonl", '{"query": " ", "pos": ["b"]}', "line 1: field query is blank"),
    (
        "a.jsonl", '\n{"query": "a", "pos": ["b"]}',
        "line 2 has no field pos_scores or scores or score or label; its fields are query, pos",
    ),
    (
        "a.jsonl", '{"query": "a", "pos": ["b"], "pos_scores": [1, 2]}',
        "line 1: pos_scores has 2 scores for 1 texts",
    ),
    (
        "a.jsonl",
        '{"query": "a", "pos": ["b", "c"], "neg": ["d"], "pos_scores": [9], "neg_scores": [1, 2]}',
        "line 1: pos_scores has 1 scores for 2 texts",
    ),
    (
        "a.jsonl", '{"query": "a", "pos": ["b"], "neg": ["c"], "scores": [1]}',
        "line 1 has 1 scores for 1 positives and 1 negatives",
    ),
    ("a.jsonl", '{"query": "a", "pos": "b", "score": 1e39}', "no float32 number"),
    ("a.jsonl", '{"query": "a", "pos": "b", "score": true}', "no float32 number"),
    ("a.jsonl", '{"query": "a", "pos": ', "line 1: .*JSON"),
    ("a.jsonl", '{"query": "a", "pos": "b", "score": "x"}', "a score that is no float32 number"),
    ("a.jsonl", '["query"]', "line 1 is not a JSON object"),
    ("a.tsv", "a\tb\n", r"a.tsv: line 1 must name the columns, .* with one of query"),
    ("a.tsv", "query\tpositive\tscore\na\tb\n", "line 2 has 2 columns; line 1 names 3"),
    ("a.csv", "a,b", "examples are read from JSON lines"),
    ("a.parquet", "no parquet", "cannot open this file as Parquet"),
]  # fmt: skip


def test_a_record_without_the_field_of_its_language_is_an_error(own, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"query": "a", "pos": "b", "lang": "en"}', "utf-8")
    own.data.examples, own.data.languages = f"{tmp_path}/a.jsonl[lng={{language}}]", "en"
    with pytest.raises(ConfigError, match="line 1 has no field lng; its fields are query, pos"):
        prepare_rows(parse(own))
    own.data.examples, own.data.languages = f"{tmp_path}/a.jsonl[lang={{language}}]", "de"
    with pytest.raises(ConfigError, match=r"data.examples contain no text .*: examples.de have"):
        prepare_rows(parse(own))


def test_a_vocabulary_is_trained_on_all_texts_of_examples(own, tmp_path):
    """Positives and negatives have letters that no query has."""
    records = [
        {"query": f"aaa {n}", "pos": [f"bbb {n}", "ccc"], "neg": [f"ddd {n}"], "scores": [1, 2, 3]}
        for n in range(200)
    ]
    text = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "en.jsonl").write_text(text, "utf-8")
    own.data.examples, own.data.languages = f"{tmp_path}/{{language}}.jsonl", "en"
    own.data.vocabulary_size = 40
    vocabulary = Vocabulary.load(prepare_rows(parse(own)).vocabulary_file)
    assert not any(UNK in ids for ids in vocabulary.encode_batch(["aaa", "bbb", "ccc", "ddd"]))


def test_a_vocabulary_is_not_trained_on_passages_that_are_held_out_queries(own, tmp_path):
    """Each text has a letter of its own, and is a query, and the positive of another query."""
    texts = [3 * chr(0x4E00 + n) for n in range(60)]
    pairs = zip(texts, texts[1:] + texts[:1], strict=True)
    lines = [json.dumps({"query": query, "pos": positive}) for query, positive in pairs]
    (tmp_path / "en.jsonl").write_text("\n".join(lines), "utf-8")
    own.data.examples, own.data.languages = f"{tmp_path}/{{language}}.jsonl", "en"
    own.data.vocabulary_size, own.data.vocabulary_coverage, own.data.held_out_share = 0, 1.0, 0.2
    own.objectives.contrast.loss, own.objectives.contrast.negatives = "softmax", 0
    vocabulary = Vocabulary.load(prepare_rows(parse(own)).vocabulary_file)
    is_unknown = [UNK in ids for ids in vocabulary.encode_batch(texts)]
    is_held_out = line_hashes(texts) < Rule(0.2).threshold
    assert is_held_out.sum() > 5 and all(np.array(is_unknown)[is_held_out])


@pytest.mark.parametrize("name, text, message", BAD)
def test_bad_files_are_errors_that_name_the_place(own, tmp_path, name, text, message):
    (tmp_path / name).write_text(text, "utf-8")
    own.data.examples, own.data.languages = f"{tmp_path}/{name}", "en"
    with pytest.raises(ConfigError, match=message):
        prepare_rows(parse(own))


def test_bad_records_are_skipped_and_counted_by_reason(own, tmp_path):
    good = {"pos": ["a cat", "one cat"], "pos_scores": [1, 2]}
    lines = [json.dumps({**good, "query": f"which cat {n}"}) for n in range(200)]
    lines.append(json.dumps({"query": "a", "pos": "b", "neg": [" "], "scores": [1, 2]}))
    lines += [text for name, text, _ in BAD if name == "a.jsonl"]
    (tmp_path / "en.jsonl").write_text("\n".join(lines), "utf-8")
    own.data.examples, own.data.languages = f"{tmp_path}/{{language}}.jsonl", "en"
    own.data.malformed, own.data.vocabulary_size = "skip", 40
    own.objectives.contrast.loss, own.objectives.contrast.negatives = "cosent", 0
    (task,) = prepare_rows(parse(own)).tasks("examples")
    assert task.train.sentences + task.held_out.sentences == 401
    assert {reason: count for reason, (count, _) in task.text.malformed.items()} == {
        "missing field": 2, "field that is no text": 1, "blank side": 2, "no JSON": 1,
        "wrong number of scores": 3, "score that is no number": 3, "no JSON object": 1,
        examples.BLANK: 1,
    }  # fmt: skip
    places = {reason: place for reason, (_, place) in task.text.malformed.items()}
    # Two examples for each of 200 lines come before.
    assert places[examples.BLANK].endswith("line 201")
    assert places["blank side"].endswith("line 204")


def test_negatives_that_are_texts_of_their_record_are_dropped_and_counted_once(own, tmp_path):
    record = {"pos_scores": [1, 2], "neg_scores": [3, 4, 5, 6]}
    lines = [
        json.dumps(
            {
                **record,
                "query": f"which cat {n}",
                "pos": [f"a cat {n}", f"one cat {n}"],
                "neg": [f" which cat {n} ", f"one cat {n}", "a dog", ""],
            }
        )
        for n in range(200)
    ]
    (tmp_path / "en.jsonl").write_text("\n".join(lines), "utf-8")
    own.data.examples, own.data.languages = f"{tmp_path}/{{language}}.jsonl", "en"
    own.data.vocabulary_size, own.data.held_out_share = 40, 0.0
    store = prepare_rows(parse(own))
    (task,) = store.tasks("examples")
    assert {reason: count for reason, (count, _) in task.text.malformed.items()} == {
        examples.REPEATED: 400, examples.BLANK: 200
    }  # fmt: skip
    (dog,) = Vocabulary.load(store.vocabulary_file).encode_batch(["p: a dog"])
    rows = Batches(store, parse(own)).read("contrast", 0, np.arange(2))
    for *_, negatives, scores in examples_in(rows):
        assert negatives == (tuple(dog),) and scores[1:] == [5.0]


def test_examples_may_have_neither_negatives_nor_scores(own, tmp_path):
    records = [{"anchor": f"which cat {n}", "positive": f"cat {n}"} for n in range(200)]
    text = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "en.jsonl").write_text(text, "utf-8")
    own.data.examples, own.data.languages = f"{tmp_path}/{{language}}.jsonl", "en"
    own.objectives.contrast.loss, own.objectives.contrast.negatives = "softmax", 0
    own.data.vocabulary_size = 40
    (task,) = prepare_rows(parse(own)).tasks("examples")
    assert [field.name for field in task.fields] == ["query", "positive"]
    assert task.train.sentences + task.held_out.sentences == 200


def test_packing_fills_rows_and_drops_examples_without_tokens():
    kind = row_kinds.load("examples?negatives=1&query_length=32")
    rng = np.random.default_rng(0)
    columns = []
    for low, high in ((0, 12), (1, 20), (0, 20)):
        lengths = rng.integers(low, high, 200)
        columns.append(Ragged(rng.integers(4, 60, lengths.sum()).astype(np.int32), lengths))
    packed = kind.pack(columns, 128, np.dtype("<u2"))
    empty = int((columns[0].lengths == 0).sum())
    assert packed.dropped == {"empty side": empty} and packed.sentences == 200 - empty
    given = int((columns[2].lengths[columns[0].lengths > 0] > 0).sum())
    assert packed.examples == 2 * packed.sentences + given
    assert (packed.rows["query"] == BOS).sum(1).max() <= 4  # one example for 32 tokens
    assert len(packed.rows["query"]) < 0.4 * packed.sentences
