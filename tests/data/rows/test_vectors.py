"""A teacher's vectors stay with their sentences, and are computed once."""

import dataclasses
import hashlib
import re

import numpy as np
import pytest
from decoding import decode

from xlj.config import Config, ConfigError, Objectives
from xlj.data.rows.building import build_rows, embed_text
from xlj.data.rows.preparing import open_rows
from xlj.data.rows.request import request_of
from xlj.data.rows.store import RowStore
from xlj.data.rows.stored_vectors import StoredVectors
from xlj.data.tokenizer.layout import BOS, PAD
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.objectives.sentence_distillation.options import SentenceDistillation, TextDistillation

WIDTH = 3
KEYS = {"batch_size": 1, "teacher": "unread", "width": WIDTH, "teacher_digest": "a"}


def vector(sentence):
    return np.frombuffer(hashlib.sha256(sentence.encode()).digest()[: 4 * WIDTH], "<u4") / 2**32


class Teacher:
    """Computes vectors by hashes; stops with an error after some calls."""

    def __init__(self, calls=999):
        self.calls, self.sentences, self.kinds = calls, [], []

    def __call__(self, kind):
        self.kinds.append(kind)
        return self.embed

    def embed(self, sentences, progress):
        progress(len(sentences))
        if not self.calls:
            raise KeyboardInterrupt
        self.calls -= 1
        self.sentences += sentences
        return np.array([vector(sentence) for sentence in sentences], np.float32)


@pytest.fixture
def own(config, text, tmp_path):
    """A config with few lines of pairs and text, some of them twice, some blank."""
    lines = (text / "xx-yy.tsv").read_text().split("\n")
    pairs = [*lines[:10], *lines[:5], *lines[10:300], *lines[:20], lines[-1]]
    (tmp_path / "xx-yy.tsv").write_text("\n".join(pairs))
    (tmp_path / "excluded.txt").write_text("\n".join(lines[3:9:2]))
    (tmp_path / "yy.txt").write_text((text / "yy.txt").read_text()[:8000])
    objectives = Objectives(
        options={
            "sentence_distillation": SentenceDistillation(
                **KEYS, languages=("yy",), prompt="abde "
            ),
            "text_distillation": TextDistillation(**KEYS),
        }
    )

    def of(cache=tmp_path / "rows"):
        made = config(cache, languages=("yy",), length=64, pair_length=128,
                      mono=(f"{tmp_path}/yy.txt",), parallel=(f"{tmp_path}/xx-yy.tsv",),
                      held_out_share=0.1, duplicates="drop", unit_bytes=4000,
                      exclude=(f"{tmp_path}/excluded.txt",))  # fmt: skip
        return Config(data=made.data, objectives=objectives)

    return of


def built(config, teacher):
    request = request_of(config)
    embed_text(request, teacher)
    return RowStore(build_rows(request))


def texts_of(tokens, vocabulary):
    """Decodes the examples of a row."""
    ids = tokens[tokens != PAD]
    return [
        decode(vocabulary, part[1:-1]) for part in np.split(ids, np.flatnonzero(ids == BOS)[1:])
    ]


def test_each_sentence_has_its_vector_in_all_rows(own):
    teacher = Teacher()
    store = built(own(), teacher)
    known = {sentence: vector(sentence) for sentence in teacher.sentences}
    vocabulary, counts = Vocabulary.load(store.vocabulary_file), {}
    for task, field in (("taught_pairs.xx-yy", "second"), ("taught_text.yy", "tokens")):
        for split in ("train", "held_out"):
            number = getattr(store.task(task), split).rows
            rows = store.read(task, split, np.arange(number))
            counts[task, split] = 0
            for row in range(number):
                texts = texts_of(rows[field][row], vocabulary)
                if field == "second":
                    assert all(text.startswith("abde ") for text in texts)
                    texts = [text.removeprefix("abde ") for text in texts]
                expected = np.zeros((rows["vectors"].shape[1], WIDTH))
                for slot, text in enumerate(texts):
                    expected[slot] = known[text]
                np.testing.assert_allclose(rows["vectors"][row], expected, rtol=1e-6)
                counts[task, split] += len(texts)
    for (task, split), count in counts.items():
        assert count == getattr(store.task(task), split).sentences > 20
    assert "empty" not in store.task("taught_text.yy").text.dropped  # blank lines end documents


def test_an_interrupted_computation_resumes_with_equal_vectors(own, capsys):
    first = Teacher(calls=1)
    with pytest.raises(KeyboardInterrupt):
        built(own(), first)
    capsys.readouterr()
    second = Teacher()
    store = built(own(), second)
    # The progress counts all sentences, those of the first call too.
    bar = r"embedding (\S+) with [^\r]* (\d+)/(\d+) [^\r]* sentences/s"
    shown = re.findall(bar, capsys.readouterr().err)
    begin, *_, end = [line for line in shown if line[0] == shown[0][0]]
    assert 0 < int(begin[1]) < int(begin[2]) == int(end[1])
    assert {name for name, *_ in shown} == {"yy", "xx-yy"}
    again, alone = Teacher(), Teacher()
    assert built(own(), again).path == store.path and not again.kinds
    other = built(own(cache=f"{store.path.parent}2"), alone)
    assert first.sentences and alone.sentences == first.sentences + second.sentences
    assert other.manifest.content_hash == store.manifest.content_hash


def test_rows_depend_on_the_teacher_and_share_its_vectors(own):
    config, teacher = own(), Teacher()
    store = built(config, teacher)
    rows = dataclasses.replace(config.data, rows=str(store.path), vocabulary="")
    opened, reopened = open_rows(dataclasses.replace(config, data=rows))
    assert reopened.path == store.path and opened.data.pairs == ("xx-yy",)
    wide = {
        name: dataclasses.replace(options, width=7)
        for name, options in config.objectives.options.items()
    }
    with pytest.raises(ConfigError, match="a teacher with 3 dimensions, .* 7; .*dense=3"):
        open_rows(dataclasses.replace(config, data=rows, objectives=Objectives(options=wide)))
    longer = dataclasses.replace(config, data=dataclasses.replace(config.data, length=62))
    assert built(longer, Teacher(calls=0)).path != store.path  # other rows of the same vectors
    options = dict(config.objectives.options)
    options["text_distillation"] = dataclasses.replace(
        options["text_distillation"], teacher_digest="b"
    )
    changed, replaced = (
        dataclasses.replace(config, objectives=Objectives(options=options)),
        Teacher(),
    )
    assert built(changed, replaced).path != store.path and len(replaced.kinds) == 1


def test_a_file_of_vectors_is_a_teacher(tmp_path):
    stored = np.arange(6, dtype=np.float64).reshape(3, 2)
    np.save(tmp_path / "v.npy", stored)
    (tmp_path / "v.txt").write_text("a  dog\na cat\na cat\n")
    teacher = StoredVectors(f"{tmp_path}/v.npy", "KEY")
    vectors = teacher.embed(["a cat", "a dog"])
    assert vectors.dtype == np.float32 and vectors.tolist() == [[2, 3], [0, 1]]
    assert teacher.width == 2 and StoredVectors.is_path("v.npy") and len(teacher.digest()) == 16
    with pytest.raises(ConfigError, match="KEY=.*v.txt has no line 'a cow'"):
        teacher.embed(["a cat", "a cow"])
    digests = {teacher.digest()}
    for change in (lambda: np.save(tmp_path / "v.npy", stored + 1),
                   lambda: (tmp_path / "v.txt").write_text("a\nb\n")):  # fmt: skip
        change()
        teacher = StoredVectors(f"{tmp_path}/v.npy", "KEY")
        digests.add(teacher.digest())
    assert len(digests) == 3
    with pytest.raises(ConfigError, match="has 3 vectors, but .*v.txt has 2 lines"):
        teacher.embed(["a"])
    np.save(tmp_path / "v.npy", stored[0])
    with pytest.raises(ConfigError, match=r"the shape \[2\] .*; expected floats"):
        StoredVectors(f"{tmp_path}/v.npy", "KEY")
    with pytest.raises(ConfigError, match=r"w.npy does not exist; vectors in NAME.npy need"):
        StoredVectors(f"{tmp_path}/w.npy", "KEY")


def test_wrong_teachers_are_refused(own):
    request = request_of(own())

    def wrong(kind):
        return lambda sentences, _: np.full((len(sentences), WIDTH), np.nan, np.float32)

    with pytest.raises(ConfigError, match="expected 3 finite numbers"):
        embed_text(request, wrong)
    options = {"sentence_distillation": SentenceDistillation(**KEYS, languages=("zz", "aa"))}
    other = dataclasses.replace(own(), objectives=Objectives(options=options))
    with pytest.raises(ConfigError, match="xx-yy has no sentences .*languages=zz,aa"):
        embed_text(request_of(other), Teacher())
