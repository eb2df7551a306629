"""A run with a teacher of sentence vectors: keys, vectors, resumption and export."""

import shutil

import numpy as np
import pytest

import xlj
from xlj.checkpoints import metrics, stored_models
from xlj.config import ConfigError, parse
from xlj.conversion import exporting
from xlj.data.rows.preparing import prepare_rows
from xlj.inference import pretrained
from xlj.retrieval import embedder
from xlj.retrieval.teaching import teachers_of
from xlj.training import start, teachers

pytestmark = pytest.mark.usefixtures("one_device")
NAME = "sentence_distillation"


@pytest.fixture
def taught(tiny, trained):
    """A config that distils `trained`, whose hidden vectors have another size than the model's."""
    for name in ("mmlm", "tlm"):
        tiny.objectives[name].batch_size = 0
    own = tiny.objectives[NAME]
    own.batch_size, own.teacher, own.dense = 8, str(trained), tiny.model.hidden
    tiny.model.hidden *= 2
    return tiny


def test_the_keys_of_a_teacher_are_set_and_compared(taught, trained, tmp_path):
    taught.init_from = ""
    source = stored_models.find(str(trained))
    config = start.adopt_model(parse(taught), tmp_path)
    own = config.objectives.options[NAME]
    assert own.width == source.model.hidden == taught.objectives[NAME].dense
    assert own.teacher_digest == teachers.digest_of(source, "") != teachers.digest_of(source, "a: ")
    assert start.adopt_model(config, tmp_path) == config
    taught.objectives[NAME].teacher_digest = "0"
    with pytest.raises(ConfigError, match=f"has the digest {own.teacher_digest}, not .*=0"):
        start.adopt_model(parse(taught))
    taught.objectives[NAME].teacher_digest = ""
    taught.objectives[NAME].dense = 0
    with pytest.raises(ConfigError, match=f"{NAME}: .*; set objectives.{NAME}.dense={own.width}"):
        start.adopt_model(parse(taught))
    taught.objectives[NAME].teacher = ""
    with pytest.raises(ConfigError, match=f"on without a teacher; .* objectives.{NAME}.teacher"):
        parse(taught)


@pytest.mark.parametrize("name", ["sentences:teacher,tiny", "adapt:sentences,tiny"])
def test_recipes_name_a_teacher_and_read_its_sentences(name):
    config = parse(xlj.recipe(name))
    on = config.objectives_on()
    assert set(on) <= {NAME, "text_distillation"} and on[NAME].languages == ("en",)
    assert all(options.teacher.startswith("checkpoints/") for options in on.values())


@pytest.mark.slow
def test_a_student_of_another_width_learns_resumes_and_is_exported(taught, trained, tmp_path):
    """The stored vectors are equal to the teacher's, the run resumes without the teacher, and the
    folder has the linear layer or, with --pooling, has none."""
    taught.objectives[NAME].prompt = "query: "
    taught.train.steps, taught.train.eval_every = 4, 4
    with pytest.raises(ConfigError, match="vectors, which are not computed yet; run .*xlj.prepare"):
        prepare_rows(start.adopt_model(parse(taught)))
    first = xlj.pretrain(taught, tmp_path / "student")
    assert first.finished
    loss_of_first = first.metrics[-1][f"eval/{NAME}/loss"]
    config = start.adopt_model(parse(taught), tmp_path / "student")
    store = prepare_rows(config)
    assert {task.kind for task in store.manifest.tasks} == {"taught_pairs"}
    sentences = ["a dog sees a cat", "the dog"]
    expected = embedder.by_modules(pretrained.of(stored_models.find(str(trained)))).embed(
        sentences
    )[0]
    (kind,) = config.row_kinds()
    np.testing.assert_array_equal(teachers_of(config)(kind)(sentences), expected)

    moved = shutil.move(trained, tmp_path / "moved")
    taught.train.steps = 6
    assert xlj.pretrain(taught, tmp_path / "student").step == 6
    shutil.move(moved, trained)
    lines = [x for x in metrics.read(tmp_path / "student") if f"eval/{NAME}/loss" in x]
    assert lines[-1][f"eval/{NAME}/loss"] < lines[0][f"eval/{NAME}/loss"]
    taught.train.gradient_accumulation_steps, taught.train.steps = 2, 4
    split = xlj.pretrain(taught, tmp_path / "split")
    assert split.metrics[-1][f"eval/{NAME}/loss"] == pytest.approx(loss_of_first, rel=1e-4)
    whole, without = tmp_path / "whole", tmp_path / "without"
    exporting.export(str(tmp_path / "student"), whole)
    exporting.export(str(tmp_path / "student"), without, pooling="mean")
    student, exported, small = (xlj.load(x) for x in (tmp_path / "student", whole, without))
    vectors = student.encode(sentences, prompt_name="query")
    assert vectors.shape == expected.shape and small.encode(sentences).shape[1] == 2 * 32
    np.testing.assert_allclose(
        exported.encode(sentences, prompt_name="document"), vectors, atol=1e-5
    )
