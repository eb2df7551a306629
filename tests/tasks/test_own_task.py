"""A kind of task of a user, from docs/tasks.md, works like any other."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from xlj import convert, predict
from xlj.api.encoder import load
from xlj.checkpoints import reading, stored_models
from xlj.config import ConfigError, finetuning, tasks
from xlj.data.labelled import kind
from xlj.finetuning import running

PAGE = (Path(__file__).parents[2] / "docs/tasks.md").read_text("utf-8")
(CODE,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
BROKEN = """

def broken():
    raise ValueError("not today")
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """The file of the kind, importable as `my_task` during the tests."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "my_task.py").write_text(CODE + BROKEN, "utf-8")
    sys.path.insert(0, str(folder))
    yield "my_task:Counting"
    sys.path.remove(str(folder))
    sys.modules.pop("my_task", None)
    tasks.load.cache_clear()


@pytest.fixture(scope="module")
def config(module, checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("counts")
    rng = np.random.default_rng(0)
    for split, size in (("train", 96), ("dev", 24), ("test", 30)):
        counts = rng.integers(1, 4, size)
        lines = [f"{' '.join(rng.choice(['cat', 'dog', 'a'], n))}\t{n}\n" for n in counts]
        (folder / f"{split}-en.tsv").write_text("".join(lines))
    config = finetuning.default()
    config.init_from, config.cache = str(checkpoint), str(folder / "rows")
    config.task.kind, config.task.length, config.task.metric = module, 16, "near"
    for split in ("train", "dev", "test"):
        config.task[split] = f"{folder}/{split}-{{language}}.tsv"
    config.train.batch_rows, config.train.epochs, config.train.evaluations = 16, 2, 2
    config.optimizer.learning_rate = 1e-2
    return config


@pytest.fixture(scope="module")
def done(config, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("counting")
    (run,) = running.run(finetuning.parse(config), workdir).runs
    return run


def test_it_trains_is_scored_and_resumes_to_the_same(done, config, tmp_path):
    assert list(done.test) == ["near", "exact"] and done.test["near"]["en"] > 50
    shutil.copytree(done.folder, tmp_path / "run" / "seed-0")
    folder = tmp_path / "run" / "seed-0"
    (folder / running.RUN).unlink()
    last = max(reading.steps(folder))
    if last != done.step:
        shutil.rmtree(folder / "checkpoints" / str(last))
    (again,) = running.run(finetuning.parse(config), tmp_path / "run").runs
    assert (again.step, again.test) == (done.step, done.test)


def test_it_predicts_what_was_scored(done, config, module, call, tmp_path):
    tested = config.task.test.replace("{language}", "en")
    lines = [line.split("\t")[0] for line in open(tested, encoding="utf-8")]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines))
    tasks.load.cache_clear()  # as in a new process: the checkpoint names the kind
    flags = [f"--checkpoint={done.folder}", f"--input={tmp_path}/text", f"--output={tmp_path}/out"]
    call(predict.main, *flags)
    expected = (done.folder / "predictions" / "test-en.tsv").read_text()
    assert (tmp_path / "out").read_text() == expected
    model = load(done.folder)
    assert [actual["count"] for actual in model.predict(lines)] == list(map(int, expected.split()))
    as_it_is = config.copy_and_resolve_references()
    as_it_is.init_from, as_it_is.train.epochs = str(done.folder), 0
    (again,) = running.run(finetuning.parse(as_it_is), tmp_path / "again").runs
    assert (again.dev, again.test) == (done.dev, done.test)


def test_the_encoder_goes_out_without_a_class_for_the_head(done, tmp_path, capsys):
    assert stored_models.find(done.folder).task.kind == "my_task:Counting"
    convert.main(["export", f"--checkpoint={done.folder}", f"--output={tmp_path}/out"])
    printed = capsys.readouterr().out
    assert (
        "counting_head/output/bias (the kind of task has no transformers class for this "
        "architecture" in printed
    )
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["architectures"] == ["XLMRobertaModel"]


@pytest.mark.parity
def test_a_class_like_another_takes_the_head(done, tmp_path, monkeypatch):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    like = {"like": "classification_head", "problem_type": "single_label_classification"}
    theirs = kind.HuggingFace("ForSequenceClassification", "text-classification", **like)
    monkeypatch.setattr(type(kind.find("my_task:Counting")), "hugging_face", theirs)
    convert.main(["export", f"--checkpoint={done.folder}", f"--output={tmp_path}/out"])
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = ["cat", "dog a cat", "a a"]
    with torch.no_grad():
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        best = model.eval()(**batch).logits.argmax(-1).tolist()
    assert [actual["count"] for actual in load(done.folder).predict(texts)] == best


@pytest.mark.parametrize(
    "named, message",
    [
        ("clasification", "must be one of classification, .*module:function; did you mean class"),
        ("my_task:Missing", "task.kind=my_task:Missing: module 'my_task' has no attribute"),
        ("nowhere:Kind", "task.kind=nowhere:Kind: No module named"),
        ("my_task:broken", "not today"),
        ("my_task:dict", "task.kind=my_task:dict"),
        ("xlj.tasks.tagging:Tagging", "xlj already has a kind named tagging"),
    ],
)
def test_kinds_that_cannot_be(module, config, named, message):
    changed = config.copy_and_resolve_references()
    changed.task.kind = named
    with pytest.raises(ConfigError, match=message):
        finetuning.parse(changed)
