"""A kind of task that xlj does not know: written here, chosen by a config, used like any other."""

import json
import shutil
import sys

import numpy as np
import pytest

from xlj import convert, predict
from xlj.api.encoder import load
from xlj.checkpoints import reading, stored_models
from xlj.config import ConfigError, finetuning, tasks
from xlj.finetuning import running

# The head says of a sentence how many words it has, up to three; labels are numbers, not names.
MINE = """
import dataclasses

import numpy as np

from xlj.config import ConfigError
from xlj.data.labelled import features
from xlj.data.labelled.examples import Example
from xlj.data.labelled.features import Features
from xlj.data.labelled.kind import TaskKind
from xlj.io import files

MOST = 3


@dataclasses.dataclass(frozen=True)
class Counted(Example):
    what = "count"
    text: str
    count: int | None
    place: str

    @property
    def labels(self):
        return None if self.count is None else ()


class Counting(TaskKind):
    name = "counting"
    metrics = ("exact", "near")
    example = Counted
    has_labels = False

    def read(self, path, language, task):
        rows = (line.split("\\t") for line in files.lines(path))
        return [Counted(t, int(n), f"{path}:{k}") for k, (t, n) in enumerate(rows, 1)]

    def rows(self, examples, vocabulary, labels, task):
        tokens, cut = features.of_texts([[e.text] for e in examples], vocabulary, task.length)
        numbers = [[0 if e.count is None else 1 + e.count] for e in examples]
        return Features(tokens, np.array(numbers, np.int32), {"examples": cut})

    def head(self):
        from xlj.models import heads
        from xlj.objectives.task_heads import TaskHead, cross_entropy, numbers

        return TaskHead(
            init=lambda rng, model, labels: heads.init_classification(rng, model, MOST + 1),
            logits=lambda head, model, hidden, tokens, rngs: heads.classify(
                head, model, hidden[:, 0], rngs
            ),
            losses=cross_entropy(lambda found, labels: (found[:, None], numbers(labels))),
        )

    def decode(self, outputs, made, examples, labels, task):
        return [int(count) for count in outputs]

    def scores(self, predicted, examples, metric, language):
        off = [abs(p - e.count) for p, e in zip(predicted, examples)]
        both = {"exact": off.count(0) / len(off), "near": sum(x < 2 for x in off) / len(off)}
        return {metric: both[metric], **both}

    def of_fields(self, fields, place):
        return Counted(fields[0], None, place)

    def of_record(self, record, place):
        return Counted(record["text"], None, place)

    def described(self, logits, made, examples, labels, task):
        return [{"count": n} for n in self.decode(logits.argmax(-1), made, examples, labels, task)]

    def to_fields(self, described):
        return [str(described["count"])]


def broken():
    raise ConfigError("not today")
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """The file of the kind, importable as `my_task` until the tests end."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "my_task.py").write_text(MINE, encoding="utf-8")
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
    tasks.load.cache_clear()  # as in a process of its own: the checkpoint names the kind
    flags = [f"--checkpoint={done.folder}", f"--input={tmp_path}/text", f"--output={tmp_path}/out"]
    call(predict.main, *flags)
    wanted = (done.folder / "predictions" / "test-en.tsv").read_text()
    assert (tmp_path / "out").read_text() == wanted
    model = load(done.folder)
    assert [found["count"] for found in model.predict(lines)] == list(map(int, wanted.split()))


def test_the_encoder_goes_out_without_a_class_for_the_head(done, tmp_path, capsys):
    assert stored_models.find(done.folder).task.kind == "my_task:Counting"
    convert.main(["export", f"--checkpoint={done.folder}", f"--output={tmp_path}/out"])
    assert "counting_head" in capsys.readouterr().out
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["architectures"] == ["XLMRobertaModel"]


@pytest.mark.parametrize(
    "kind, message",
    [
        ("clasification", "must be one of classification, .*module:function; did you mean class"),
        ("my_task:Missing", "task.kind=my_task:Missing: module 'my_task' has no attribute"),
        ("nowhere:Kind", "task.kind=nowhere:Kind: No module named"),
        ("my_task:broken", "not today"),
        ("my_task:dict", "task.kind=my_task:dict"),
        ("xlj.tasks.tagging:Tagging", "its name tagging is that of a kind of xlj's"),
    ],
)
def test_kinds_that_cannot_be(module, config, kind, message):
    changed = config.copy_and_resolve_references()
    changed.task.kind = kind
    with pytest.raises(ConfigError, match=message):
        finetuning.parse(changed)
