"""A user's own kind of task, the example of docs/tasks.md, works like a built-in kind."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from xlj import convert, predict
from xlj.api.loading import load
from xlj.checkpoints import reading, stored_models
from xlj.config import ConfigError, finetuning, task
from xlj.data.labelled import kind
from xlj.finetuning import task_runs

pytestmark = pytest.mark.usefixtures("one_device")

PAGE = (Path(__file__).parents[2] / "docs/tasks.md").read_text("utf-8")
(CODE,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
BROKEN = """

def broken():
    raise ValueError("not today")
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """The value of task.kind. Its module `my_task` can be imported during the tests."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "my_task.py").write_text(CODE + BROKEN, "utf-8")
    sys.path.insert(0, str(folder))
    yield "my_task:Counting"
    sys.path.remove(str(folder))
    sys.modules.pop("my_task", None)
    task.load.cache_clear()


@pytest.fixture(scope="module")
def config(module, checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("counts")
    rng = np.random.default_rng(0)
    for split, size in (("train", 96), ("dev", 24), ("test", 30)):
        counts = rng.integers(1, 4, size)
        lines = [f"{' '.join(rng.choice(['cat', 'dog', 'a'], n))}\t{n}\n" for n in counts]
        (folder / f"{split}-en.tsv").write_text("".join(lines))
    config = finetuning.default()
    config.init_from, config.data.cache = str(checkpoint), str(folder / "rows")
    config.task.kind, config.task.length, config.task.metric = module, 16, "near"
    for split in ("train", "dev", "test"):
        config.task[split] = f"{folder}/{split}-{{language}}.tsv"
    config.task.batch_size, config.train.steps, config.train.eval_every = 16, "2ep", "50%"
    config.optimizer.learning_rate = 1e-2
    return config


@pytest.fixture(scope="module")
def finished_run(config, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("counting")
    (run,) = task_runs.run(finetuning.parse(config), workdir).runs
    return run


@pytest.mark.slow
def test_an_own_kind_trains_and_resumes_with_the_same_scores(finished_run, config, tmp_path):
    assert list(finished_run.test) == ["near", "exact"] and finished_run.test["near"]["en"] > 50
    shutil.copytree(finished_run.folder, tmp_path / "run" / "seed-0")
    folder = tmp_path / "run" / "seed-0"
    (folder / task_runs.RUN).unlink()
    last = max(reading.steps(folder))
    if last != finished_run.step:
        shutil.rmtree(folder / "checkpoints" / str(last))
    (resumed,) = task_runs.run(finetuning.parse(config), tmp_path / "run").runs
    assert (resumed.step, resumed.test) == (finished_run.step, finished_run.test)


@pytest.mark.slow
def test_an_own_kind_predicts_the_values_that_were_scored(
    finished_run, config, module, call, tmp_path
):
    test_file = config.task.test.replace("{language}", "en")
    lines = [line.split("\t")[0] for line in open(test_file, encoding="utf-8")]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines))
    task.load.cache_clear()  # as in a new process: the checkpoint names the kind
    flags = [
        f"--checkpoint={finished_run.folder}",
        f"--input={tmp_path}/text",
        f"--output={tmp_path}/out",
    ]
    call(predict.main, *flags)
    expected = (finished_run.folder / "predictions" / "test-en.tsv").read_text()
    assert (tmp_path / "out").read_text() == expected
    model = load(finished_run.folder)
    assert [prediction["count"] for prediction in model.predict(lines)] == list(
        map(int, expected.split())
    )
    evaluation_config = config.copy_and_resolve_references()
    evaluation_config.init_from, evaluation_config.train.steps = str(finished_run.folder), 0
    (evaluated,) = task_runs.run(finetuning.parse(evaluation_config), tmp_path / "again").runs
    assert (evaluated.dev, evaluated.test) == (finished_run.dev, finished_run.test)


@pytest.mark.slow
def test_a_head_without_a_transformers_class_is_not_exported_with_the_encoder(
    finished_run, tmp_path, capsys
):
    assert stored_models.find(finished_run.folder).task.kind == "my_task:Counting"
    convert.main(["export", f"--checkpoint={finished_run.folder}", f"--output={tmp_path}/out"])
    stdout = capsys.readouterr().out
    assert (
        "counting_head/output/bias (the kind of task has no transformers class for this "
        "architecture" in stdout
    )
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["architectures"] == ["XLMRobertaModel"]


@pytest.mark.slow
@pytest.mark.parity
def test_a_kind_can_export_its_head_to_an_existing_transformers_class(
    finished_run, tmp_path, monkeypatch
):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    options = {"like": "classification_head", "problem_type": "single_label_classification"}
    hugging_face = kind.HuggingFace("ForSequenceClassification", "text-classification", **options)
    monkeypatch.setattr(type(kind.find("my_task:Counting")), "hugging_face", hugging_face)
    convert.main(["export", f"--checkpoint={finished_run.folder}", f"--output={tmp_path}/out"])
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = ["cat", "dog a cat", "a a"]
    with torch.no_grad():
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        best = model.eval()(**batch).logits.argmax(-1).tolist()
    assert [prediction["count"] for prediction in load(finished_run.folder).predict(texts)] == best


@pytest.mark.parametrize(
    "kind_name, message",
    [
        ("clasification", "must be one of classification, .*module:function; did you mean class"),
        ("my_task:Missing", "task.kind=my_task:Missing: module 'my_task' has no attribute"),
        ("nowhere:Kind", "task.kind=nowhere:Kind: No module named"),
        ("my_task:broken", "not today"),
        ("my_task:dict", "task.kind=my_task:dict"),
        ("xlj.tasks.tagging:Tagging", "xlj already has a kind named tagging"),
    ],
)
def test_invalid_kinds_are_refused(module, config, kind_name, message):
    changed = config.copy_and_resolve_references()
    changed.task.kind = kind_name
    with pytest.raises(ConfigError, match=message):
        finetuning.parse(changed)
