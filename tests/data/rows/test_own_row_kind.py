"""A kind of rows of a user, outside xlj: three named columns, trained by an objective of the user.

Of the tests of rows, only this one has more than two columns, and a field of another type than ids.
"""

import importlib
import json
import sys

import numpy as np
import pytest

from xlj import config as schema
from xlj.checkpoints import metrics
from xlj.config import ConfigError, objectives, parse, row_kinds
from xlj.data.rows.batches import Batches
from xlj.data.rows.preparing import open_rows, prepare_rows, with_pair_length
from xlj.data.rows.report import report
from xlj.data.rows.request import request_of
from xlj.data.rows.store import Corpus
from xlj.data.tokenizer.layout import BOS, EOS, PAD, UNK
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.training import loop, start

CODE = """
import dataclasses
import jax
import jax.numpy as jnp
import numpy as np
from xlj.config import Options, register
from xlj.data.rows import packing
from xlj.data.rows.row_kind import Field
from xlj.data.rows.row_kind import Packed, RowKind
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.models import encoder
from xlj.models.segments import (average_rows)
from xlj.objectives.objective import Loss, LossSums, Objective
from xlj.models.segments import whole_examples


class Triples(RowKind):
    name, source, length = "triples", "data.examples", "data.length"
    columns = ("query", "positive", "negative")

    def fields(self, length, ids):
        texts = [Field(name, ids, (length,), is_text=True) for name in self.columns]
        return (*texts, Field("overlap", "<f4", ()))

    def pack(self, columns, length, ids, *, documents, mask):
        sizes = np.max([column.lengths for column in columns], axis=0) + 2
        keep, dropped, too_long = packing.find_fitting(columns, sizes, length)
        rows, count = {}, int(keep.sum())
        for name, column in zip(self.columns, columns, strict=True):
            side, base = column.select(keep), np.arange(count) * length
            rows[name] = np.full((count, length), PAD, ids)
            flat = rows[name].reshape(-1)
            flat[base], flat[base + side.lengths + 1] = BOS, EOS
            packing.copy_runs(side.ids, side.starts, flat, base + 1, side.lengths)
        equal = (rows["query"] == rows["positive"]) & (rows["query"] > 3)
        rows["overlap"] = (equal.sum(1) / length).astype(np.float32)
        return Packed(rows, 3 * count, count, dropped=dropped, too_long=too_long)


@register("ranking")
@dataclasses.dataclass(frozen=True)
class Ranking(Options):
    rows = f"{__name__}:Triples"
    implementation = f"{__name__}:objective"


def objective(name, options, model, corpus):
    def vectors(params, rows, field, rngs):
        tokens = rows[field].astype(jnp.int32)
        inputs = whole_examples(model, tokens, rows["languages"][:, :2])
        return average_rows(encoder.apply(params, model, inputs, rngs), tokens)

    def count(rows):
        return {name: (rows["query"][:, 0] != PAD).astype(jnp.float32)}

    def loss(params, state, rows, rngs):
        query, good, bad = (vectors(params, rows, x, rngs) for x in Triples.columns)
        distance = (query * (bad - good)).sum(1) + rows["overlap"]
        counts = count(rows)[name]
        return {name: LossSums(jax.nn.softplus(distance) * counts, counts, (distance < 0) * counts)}

    return Objective({name: Loss(options.weight)}, lambda rows, rngs: rows, count, loss)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A config of the module above, and the records of its text."""
    (tmp_path / "own_triples.py").write_text(CODE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("own_triples")
    records = [
        (f"who saw {i} cats", f"{i} cats were seen", f"no dog of {(7 * i) % 300}")
        for i in range(300)
    ]
    records.append(("too long " * 20, "a", "b"))
    text = "".join("\t".join(record) + "\n" for record in records)
    for language in ("en", "de"):
        (tmp_path / f"{language}.tsv").write_text(text, "utf-8")
    config = schema.default(objective_modules="own_triples")
    config.data.languages, config.data.examples = "en,de", f"{tmp_path}/{{language}}.tsv"
    config.data.cache, config.data.vocabulary_size = str(tmp_path / "rows"), 80
    config.data.length, config.data.held_out_share = 32, 0.1
    model = config.model
    model.layers, model.hidden, model.heads, model.intermediate = 1, 16, 2, 32
    config.objectives.ranking.batch_size = 8
    config.train.steps, config.train.eval_rows, config.train.log_every = 3, 5, 1
    config.train.eval_every = 3
    yield config, records
    sys.modules.pop("own_triples")
    objectives._REGISTERED.pop("ranking")
    row_kinds.load.cache_clear()


@pytest.mark.slow
def test_an_own_kind_of_rows_is_built_read_and_trained(own, tmp_path, capsys):
    config, records = own
    parsed = parse(config)
    store = prepare_rows(parsed)
    (task, other), vocabulary = store.tasks("triples"), Vocabulary.load(store.vocabulary_file)
    assert task.name == "triples.en" and task.languages == ("en",) * 3
    assert [field.name for field in task.fields] == ["query", "positive", "negative", "overlap"]
    assert task.text.dropped["too long"] == 1
    corpus = Corpus.of(store)
    assert corpus.languages == ("en", "de") and corpus.paired == ()  # no pair of two languages
    assert task.train.sentences + task.held_out.sentences <= 300 and task.held_out.rows > 10
    assert (task.train.sha256, task.train.rows) == (other.train.sha256, other.train.rows)
    expected = {}
    for record in records[:-1]:
        row = np.full((3, 32), PAD)
        for side, ids in zip(row, vocabulary.encode_batch(record), strict=True):
            side[: len(ids) + 2] = [BOS, *ids, EOS]
        overlap = ((row[0] == row[1]) & (row[0] > 3)).sum() / 32
        expected[row.tobytes()] = np.float32(overlap)
    batch = Batches(store, parsed).read("ranking", 2, np.arange(8))
    assert batch["languages"].shape == (8, 3) and batch["overlap"].dtype == np.float32
    for n in range(8):
        row = np.stack([batch[name][n] for name in ("query", "positive", "negative")])
        assert batch["overlap"][n] == expected[row.astype(int).tobytes()]
        assert len(set(batch["languages"][n].tolist())) == 1

    line = next(x for x in report(store, parsed.data).split("\n") if x.startswith("triples.en"))
    assert line.split()[6] == f"{100 * task.train.tokens / task.train.rows / 96:.1f}%"
    outcome = loop.train(start.prepare(parsed, tmp_path / "run"))
    assert outcome.finished
    lines = metrics.read(tmp_path / "run")
    assert {"eval/ranking/en/loss", "eval/ranking/de/loss"} <= lines[-1].keys()
    assert 0 < lines[-1]["eval/ranking/loss"] < 10
    assert request_of(parsed).folder == store.path
    (tmp_path / "own_triples.py").write_text(CODE + "# changed", "utf-8")
    assert request_of(parsed).folder != store.path
    config.data.rows, config.data.examples = store.path.name, ""
    assert open_rows(parse(config))[0].data.languages == ("en", "de")


def test_a_vocabulary_is_trained_on_all_columns_of_an_own_kind(own, tmp_path):
    """The columns are of one language, and have no letter in common."""
    config, _ = own
    text = "".join(f"aaa {i}\tbbb {i}\tccc {i}\n" for i in range(200))
    for language in ("en", "de"):
        (tmp_path / f"{language}.tsv").write_text(text, "utf-8")
    config.data.vocabulary_size = 40
    vocabulary = Vocabulary.load(prepare_rows(parse(config)).vocabulary_file)
    assert not any(UNK in ids for ids in vocabulary.encode_batch(["aaa", "bbb", "ccc"]))


def test_only_rows_of_pair_length_choose_the_pair_length(own, tmp_path):
    """The examples are longer than the pairs, and their rows have `data.length`."""
    config, _ = own
    pairs = "".join(f"{n} cats\t{n} Katzen\n" for n in range(300))
    (tmp_path / "en-de.tsv").write_text(pairs, "utf-8")
    config.data.pairs, config.data.parallel = "en-de", f"{tmp_path}/{{pair}}.tsv"
    config.data.pair_length, config.objectives.tlm.batch_size = "auto", 8
    length = with_pair_length(parse(config)).data.pair_length
    (request,) = (tmp_path / "rows" / "lengths").glob("*.json")
    assert list(json.loads(request.read_bytes())) == ["pairs.en-de pairs"]
    assert 16 <= length <= 24


@pytest.mark.parametrize(
    "text, message",
    [
        ("a\tb\n", r"en\.tsv: line 1 has 1 tabs; a line must be 3 texts with tabs"),
        ("a\tb\tc\na\t \tc\n", r"en\.tsv: line 2 has a blank side"),
    ],
)
def test_a_line_with_other_columns_is_an_error_that_names_it(own, tmp_path, text, message):
    (tmp_path / "en.tsv").write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=message):
        prepare_rows(parse(own[0]))


def test_incomplete_kinds_of_rows_are_refused(tmp_path, monkeypatch):
    (tmp_path / "own_kinds.py").write_text(
        CODE.partition("@register")[0]
        + "class Text(Triples):\n    name = 'text'\n"
        + "class Nameless(Triples):\n    name = source = ''\n"
        + "class Mono(Triples):\n    source = 'data.mono'\n"
        + "class Elsewhere(Triples):\n    source = 'data.triples'\n",
        "utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    for kind, message in (
        ("triplets", "rows of kind 'triplets' do not exist; the kinds are text, sentences, pairs"),
        ("own_kinds:Missing", "rows=own_kinds:Missing: module 'own_kinds' has no attribute"),
        ("own_kinds:Text", "the name 'text' must be an identifier that is not one of text"),
        ("own_kinds:Nameless", "the kind of rows must set name, source"),
        ("own_kinds:RowKind", "rows=own_kinds:RowKind: TypeError: Can't instantiate abstract"),
        ("own_kinds:Mono", r"data\.mono with 3 columns does not exist; .* data\.mono \(1\), "),
        ("own_kinds:Elsewhere", r"data\.triples with 3 columns .* data\.examples \(any\)"),
    ):
        with pytest.raises(ConfigError, match=message):
            row_kinds.load(kind)
