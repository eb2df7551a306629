"""The start of a run reads each file once, and reports config errors before rows are built."""

import collections
import contextlib
import dataclasses
import shutil
import types
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

import xlj
from xlj.checkpoints import compatibility, reading, stored_models
from xlj.config import ConfigError, finetuning, parse
from xlj.data.rows.preparing import prepare_rows
from xlj.data.rows.request import request_of
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import buckets
from xlj.sharding import meshes
from xlj.training import loop, memory, start

pytestmark = pytest.mark.usefixtures("one_device")

ONCE = (
    meshes.make_mesh,
    meshes.check_batches,
    memory.check_fits,
    reading.latest,
    stored_models.find,
    Vocabulary.__init__,
    compatibility.check_resumable,
)


COUNTED = []
"""The wrappers of functions whose code is replaced; the new code calls them by their index."""


@contextlib.contextmanager
def calls_before_and_after(event):
    """Counts the calls of `ONCE`, by name, before `event` is called and after it. The code of these
    functions is replaced, so that calls by any name are counted."""
    before, after = collections.Counter(), collections.Counter()
    counted, codes = [before], {}

    def replace(function, on_call):
        original = types.FunctionType(
            codes.setdefault(function, function.__code__), function.__globals__,
            argdefs=function.__defaults__,
        )  # fmt: skip
        original.__kwdefaults__ = function.__kwdefaults__

        def call(*args, **kwargs):
            on_call()
            return original(*args, **kwargs)

        COUNTED.append(call)
        wrapper = f"__import__('sys').modules[{__name__!r}].COUNTED[{len(COUNTED) - 1}]"
        function.__code__ = eval(f"lambda *args, **kwargs: {wrapper}(*args, **kwargs)").__code__

    for function in ONCE:
        name = function.__qualname__
        replace(function, lambda name=name: counted[-1].update([name]))
    if event not in ONCE:
        replace(event, lambda: counted.append(after))
    try:
        yield before, after
    finally:
        for function, code in codes.items():
            function.__code__ = code


NEW = {
    "make_mesh": 1,
    "check_batches": 1,
    "check_fits": 1,
    "latest": 1,
    "find": 1,
    "Vocabulary.__init__": 1,
}
RESUMED = {**NEW, "find": 0, "check_resumable": 1}


@pytest.mark.slow
def test_pretraining_reads_and_checks_each_thing_once(tiny, trained, tmp_path):
    tiny.train.steps, tiny.train.damaged_checkpoint = 2, "before"
    tiny.init_from, tiny.transfer.optimizer = str(trained), True
    with calls_before_and_after(prepare_rows) as (before, after):
        xlj.pretrain(tiny, tmp_path / "next")
    assert (+before, after) == (NEW, {})

    tiny.train.steps = 3
    with calls_before_and_after(prepare_rows) as (before, after):
        assert xlj.pretrain(tiny, tmp_path / "next").step == 3
    assert (before, after) == (collections.Counter(RESUMED), {})

    tiny.train.steps = "0.03ep"
    with calls_before_and_after(prepare_rows) as (before, after):
        assert xlj.pretrain(tiny, tmp_path / "next").finished
    assert (before, after) == (collections.Counter(RESUMED), {"check_resumable": 1})


@pytest.mark.slow
def test_pretraining_reads_init_from_and_the_teacher_once(tiny, trained, tmp_path, store):
    tiny.train.steps, tiny.init_from = 1, str(trained)
    tiny.transfer.vocabulary, tiny.data.vocabulary = "matched", str(store.vocabulary_file)
    tiny.objectives.distillation.batch_size = 8
    tiny.objectives.distillation.teacher = str(trained)
    with calls_before_and_after(prepare_rows) as (before, after):
        xlj.pretrain(tiny, tmp_path / "next")
    assert before == {**NEW, "find": 2}  # init_from and the teacher
    assert after == {"Vocabulary.__init__": 2}  # the vocabularies of the two models


@pytest.mark.slow
def test_model_dtype_auto_is_decided_once(tiny, store, trained, tmp_path):
    """The devices decide `auto` in a new run, and the checkpoint decides it in a resumed run."""
    tiny.model.dtype = "auto"
    config = parse(tiny)
    assert start.prepare(config, tmp_path, store).config.model.dtype == "float32"
    for platform, dtype in (("cpu", "float32"), ("gpu", "bfloat16"), ("tpu", "bfloat16")):
        assert config.for_platform(platform).model.dtype == dtype
    tiny.model.dtype = "bfloat16"
    loop.train(start.prepare(parse(tiny), tmp_path, store))
    assert start.prepare(config, tmp_path, store).config.model.dtype == "bfloat16"
    assert start.prepare(config, trained, store).config.model.dtype == "float32"
    tiny.model.dtype = "float32"
    assert parse(tiny).for_platform("gpu") == parse(tiny)  # an explicit type is kept


@pytest.mark.slow
def test_a_student_from_scratch_has_its_teachers_vocabulary(tiny, trained, tmp_path):
    tiny.train.steps, tiny.data.vocabulary_size = 1, 900  # not used
    tiny.objectives.distillation.batch_size = 8
    tiny.objectives.distillation.teacher = str(trained)
    digest = stored_models.find(trained).vocabulary().digest
    assert digest == start.prepare(parse(tiny), tmp_path / "next").vocabulary.digest
    xlj.pretrain(tiny, tmp_path / "next")
    resumed = start.prepare(parse(tiny), tmp_path / "next")
    assert digest == resumed.vocabulary.digest


@pytest.mark.slow
def test_finished_rows_are_opened_and_their_vocabulary_is_read_once(tiny, store, tmp_path):
    tiny.train.steps, tiny.data.rows = 1, str(store.path)
    with calls_before_and_after(loop.train) as (before, after):
        xlj.pretrain(tiny, tmp_path / "run")
    assert (+before, after) == ({name: 1 for name in NEW if name != "find"}, {})


@pytest.mark.slow
def test_fine_tuning_reads_the_encoder_once_for_all_seeds(checkpoint, tmp_path):
    for split in ("train", "dev", "test"):
        lines = [f"{word} {number}\tlabel {word}\n" for number in range(8) for word in "ab"]
        (tmp_path / f"{split}-en.tsv").write_text("".join(lines), "utf-8")
    config = finetuning.default()
    config.init_from, config.data.cache = str(checkpoint), str(tmp_path / "rows")
    for split in ("train", "dev", "test"):
        config.task[split] = f"{tmp_path}/{split}-{{language}}.tsv"
    config.task.length, config.task.batch_size, config.task.seeds = 16, 16, 2
    config.train.steps, config.train.eval_every = "1ep", "100%"
    with calls_before_and_after(loop.train) as (before, after):
        outcome = xlj.fine_tune(config, tmp_path / "run")
    seeds = len(outcome.runs)
    assert seeds == 2
    assert before == {name: 1 if name in ("find", "Vocabulary.__init__") else seeds for name in NEW}
    assert after == {"find": seeds}  # the checkpoints that are scored


@pytest.fixture
def no_rows(monkeypatch):
    def fail(*_, **__):
        raise AssertionError("rows are built")

    monkeypatch.setattr(start, "prepare_rows", fail)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"mesh.replica": 3}, "mesh.replica=3"),
        ({"objectives.mmlm.batch_size": 10}, "10 rows are not divisible"),
        ({"model.hidden": 10**9}, "Lower model.hidden"),
        ({"init_from": "/nowhere"}, "init_from=/nowhere"),
        ({"init_from": "RUN", "model.layers": 3}, "model.layers: 2 -> 3"),
        ({"objectives.distillation.teacher": "/nowhere"}, "distillation.teacher=/nowhere"),
        ({"objectives.distillation.teacher": "RUN", "model.layers": 3},
         r"objectives\.distillation\.teacher=.*model\.layers: 2 -> 3"),
        ({"data.vocabulary": "/nowhere"}, "vocabulary /nowhere"),
        ({"evaluation.alignment.source": "/nowhere/{pair}"}, "/nowhere/en-de"),
        ({"data.rows": "/nowhere"}, "data.rows=/nowhere"),
    ],
)  # fmt: skip
def test_mismatches_are_refused_before_rows_are_built(
    tiny, trained, no_rows, tmp_path, changes, message, devices
):
    devices(8)
    if "objectives.distillation.teacher" in changes:
        tiny.objectives.distillation.batch_size = 8
    for key, value in changes.items():
        tiny.update_from_flattened_dict({key: str(trained) if value == "RUN" else value})
    with pytest.raises(ConfigError, match=message):
        xlj.pretrain(tiny, tmp_path / "next")
    assert not (tmp_path / "next").exists()


def test_a_checkpoint_of_another_run_is_refused_before_rows_are_built(tiny, trained, no_rows):
    tiny.optimizer.learning_rate = 0.2
    with pytest.raises(reading.CheckpointError, match=r"optimizer\.learning_rate: 0\.001 -> 0\.2"):
        xlj.pretrain(tiny, trained)
    tiny.optimizer.learning_rate, tiny.train.steps = 1e-3, 3
    with pytest.raises(
        reading.CheckpointError, match=r"is beyond the last step, train\.steps=3; raise"
    ):
        xlj.pretrain(tiny, trained)


OTHER_TEXT = [
    ({"data.languages": "en,de"}, r"rows of text\.sw: removed"),
    ({"data.pairs": "en-de", "data.parallel": "phrasebook:{pair}", "data.languages": "en,de,fr",
      "data.mono": "phrasebook:{language}"},
     r"pairs\.en-sw: removed; rows of text\.fr: new; rows of text\.sw: removed"),
    ({"data.length": 40, "data.pair_length": "auto"}, r"text\.sw: 32 -> 40 tokens\. To start"),
    ({"data.vocabulary_size": 500}, r"data\.vocabulary_size: 400 -> 500"),
    ({"data.mono": "MOVED/mono/{language}.txt"}, r"data\.mono: text\.de [\d,]+ -> [\d,]+\. To res"),
    ({"data.parallel": "phrasebook:{pair}"}, r"data\.parallel: \[.*\] -> \['phrasebook:{pair}'\]"),
    *(({f"data.{key}": value}, rf"data\.{key}: .*allow_change=data\.{key}\.") for key, value in
      {"held_out_share": 0.04, "exclude": "MOVED/mono/en.txt", "duplicates": "drop",
       "malformed": "skip", "unit_bytes": 4096}.items()),
]  # fmt: skip


@pytest.fixture
def moved(corpus, tmp_path):
    """A copy of the text of `tiny`, whose German text has another line."""
    moved = shutil.copytree(corpus, tmp_path / "moved")
    with (moved / "mono/de.txt").open("a") as file:
        file.write("Und noch ein Satz.\n")
    return moved


@pytest.mark.parametrize("changes, message", OTHER_TEXT)
def test_other_text_is_refused_before_it_is_read(
    tiny, trained, moved, monkeypatch, changes, message
):
    for build in ("prepare_rows", "with_pair_length"):
        monkeypatch.setattr(start, build, lambda *_, **__: pytest.fail("text is read"))
    changes = {k: v.replace("MOVED", str(moved)) if isinstance(v, str) else v
               for k, v in changes.items()}  # fmt: skip
    tiny.update_from_flattened_dict(changes)
    with pytest.raises(reading.CheckpointError, match=message):
        start.prepare(parse(tiny), trained)


@pytest.mark.slow
def test_the_same_text_elsewhere_resumes_and_other_text_if_the_key_is_allowed(
    tiny, trained, moved, corpus, store, tmp_path
):
    """Rows of text at another path are built again, and then compared."""
    tiny.data.parallel = f"{moved}/pairs/{{pair}}.tsv"
    tiny.data.cache, tiny.data.workers = str(tmp_path / "rows"), 1
    resumed = start.prepare(parse(tiny), trained)
    assert resumed.done == 4 and resumed.store.path != store.path
    tiny.data.mono, tiny.train.allow_change = f"{moved}/mono/{{language}}.txt", "data.mono"
    with pytest.raises(reading.CheckpointError, match=r"rows of text\.de: changed"):
        start.prepare(parse(tiny), trained)


def test_other_paths_are_allowed_if_the_files_have_the_same_sizes(tiny, trained, moved):
    """The paths are compared if a checkpoint does not have the sizes."""
    latest = reading.latest(trained)
    old = dataclasses.replace(latest, meta={k: v for k, v in latest.meta.items() if k != "text"})
    config = parse(tiny)
    compatibility.check_text(old, request_of(config), config)
    tiny.data.parallel = f"{moved}/pairs/{{pair}}.tsv"
    config = parse(tiny)
    compatibility.check_text(latest, request_of(config), config)
    with pytest.raises(reading.CheckpointError, match=r"allow_change=data\.parallel"):
        compatibility.check_text(old, request_of(config), config)
    tiny.data.mono, tiny.train.allow_change = f"{moved}/mono/{{language}}.txt", "data.mono"
    config = parse(tiny)
    compatibility.check_text(latest, request_of(config), config)


def test_another_vocabulary_is_refused_before_text_is_read(tiny, trained, vocabulary, no_rows,
                                                           tmp_path):  # fmt: skip
    tiny.data.vocabulary = str(tmp_path / "other.model")
    Path(tiny.data.vocabulary).write_bytes(vocabulary.model)
    with pytest.raises(reading.CheckpointError, match="another run: another vocabulary"):
        start.prepare(parse(tiny), trained)


def test_the_vocabulary_of_a_model_is_written_into_a_bucket(tiny, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(buckets, "_system", lambda scheme: MemoryFileSystem())
    tiny.init_from, tiny.data.cache = str(trained), "gs://bucket/cache"
    config = parse(tiny)
    for _ in range(2):  # the second time, the file exists
        new_config, vocabulary = start.adopt_vocabulary(config, start.find_source(config), None)
        path = new_config.data.vocabulary
        assert path == f"gs://bucket/cache/vocabularies/{vocabulary.digest[:16]}.model"
        assert Vocabulary.load(path).digest == vocabulary.digest
    assert not Path("gs:").exists()


def with_model_of(tiny, source):
    """Sets `transfer.model=init_from` in `tiny`, and other sizes in its own section `model`."""
    tiny.init_from, tiny.transfer.model = str(source), "init_from"
    tiny.model.layers, tiny.model.hidden, tiny.model.intermediate = 5, 48, 96
    tiny.model.dropout, tiny.model.scan_layers = 0.25, False
    return tiny


def test_the_model_of_init_from_is_used_except_for_keys_that_a_run_may_set(tiny, trained):
    source_model = parse(tiny).model
    config = start.adopt_model(parse(with_model_of(tiny, trained)))
    assert config.model == dataclasses.replace(source_model, dropout=0.25, scan_layers=False)
    assert start.adopt_model(config) == config
    tiny.transfer.model = "config"
    config = parse(tiny)
    assert start.adopt_model(config) is config


def test_the_config_is_checked_against_the_model_of_init_from(tiny, trained, no_rows, tmp_path):
    with_model_of(tiny, trained)
    tiny.data.length = tiny.model.positions = 60  # the model has 50
    with pytest.raises(ConfigError, match=r"data\.length=60 .*model\.positions=50"):
        xlj.pretrain(tiny, tmp_path / "next")
    tiny.data.length, tiny.data.pairs = 32, ""
    with pytest.raises(ConfigError, match=r"data\.parallel"):
        xlj.pretrain(tiny, tmp_path / "next")
    tiny.init_from = ""
    with pytest.raises(ConfigError, match=r"transfer\.model=init_from .*; set init_from"):
        parse(tiny)


def test_a_model_key_that_init_from_decides_is_refused_if_the_user_sets_it(tiny, trained):
    with_model_of(tiny, trained)
    with pytest.raises(ConfigError, match=r"model\.hidden .*transfer\.model=init_from"):
        parse(tiny, ["model.hidden"])
    parse(tiny, ["model.dropout", "model.scan_layers"])


@pytest.mark.slow
def test_a_run_resumes_with_the_model_of_a_deleted_init_from(tiny, trained, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(trained, source)
    tiny.train.steps = 2
    first = xlj.pretrain(with_model_of(tiny, source), tmp_path / "next")
    shutil.rmtree(source)
    tiny.train.steps = 3
    second = xlj.pretrain(tiny, tmp_path / "next")
    assert (first.step, second.step) == (2, 3)
    model = stored_models.find(tmp_path / "next").model
    assert (model.layers, model.hidden, model.dropout) == (2, 32, 0.25)
    tiny.train.steps, tiny.train.damaged_checkpoint = 4, "before"
    (tmp_path / "next/checkpoints/3/meta/metadata").write_text("{")
    assert xlj.pretrain(tiny, tmp_path / "next").step == 4
    assert (tmp_path / "next/damaged/3").is_dir()
