"""Batches of labelled rows lose the padding that all their rows share, and nothing else."""

import dataclasses
import json

import numpy as np
import pytest

from xlj.checkpoints import metrics
from xlj.config import Config, finetuning, schema
from xlj.data.labelled.features import Features
from xlj.data.rows import batches as row_batches
from xlj.data.rows.batches import Batches
from xlj.data.tokenizer.layout import PAD
from xlj.finetuning import task_data, task_runs
from xlj.objectives.supervised.options import supervised
from xlj.tasks.tagging import Tagging

LENGTH, ROWS, PER_STEP = 72, 60, 4


def labels_of(kind, rng):
    """Random labels for rows of `LENGTH` tokens, with other values at padding too."""
    if kind == "word_links":
        return {"links": rng.integers(0, 256, (ROWS, 2, LENGTH, LENGTH // 8), np.uint8)}
    shape = (ROWS, {"tagging": LENGTH, "question_answering": 2}.get(kind, 1))
    return {"labels": rng.integers(0, 30, shape, np.int32)}


@pytest.mark.parametrize(
    "kind", ["tagging", "word_links", "question_answering", "classification", "multiple_choice"]
)
def test_a_batch_has_the_columns_of_its_longest_row(kind, vocabulary, tmp_path):
    rng = np.random.default_rng(0)
    sizes = rng.choice([3, 20, 32, 33, 60, LENGTH], ROWS, p=[0.4, 0.3, 0.2, 0.04, 0.03, 0.03])
    tokens = rng.integers(PAD + 1, vocabulary.size, (ROWS, LENGTH)).astype(np.int32)
    tokens[np.arange(LENGTH) >= sizes[:, None]] = PAD
    labels = labels_of(kind, rng)
    features = {"en": Features(tokens, labels, {})}
    store = task_data.write_rows(tmp_path, kind, features, vocabulary)
    options = supervised(kind)(batch_size=PER_STEP, length=LENGTH, labels=("a", "b"))
    config = dataclasses.replace(
        Config(),
        objectives=schema.Objectives(options={kind: options}),
        train=dataclasses.replace(Config().train, steps=300),  # more than are measured together
    )
    batches, widths = Batches(store, config), set()
    for step in (*range(25), *range(250, 262), 299):
        drawn = [row for _, row in batches.draw(kind, step, np.arange(PER_STEP))]
        longest = sizes[drawn].max()
        width = min(LENGTH, 32 if longest <= 32 else 64 if longest <= 64 else 128)
        assert batches.shapes(step) == {kind: (PER_STEP, width)}
        read = batches.read(kind, step, np.arange(PER_STEP))
        assert {f.name: f.shape for f in batches.fields(kind, step)} == {
            name: array.shape[1:] for name, array in read.items()
        }
        expected = {"tokens": tokens[drawn][:, :width]}
        match kind:
            case "tagging":
                expected["labels"] = labels["labels"][drawn][:, :width]
            case "word_links":
                expected["links"] = labels["links"][drawn][:, :, :width, : width // 8]
            case _:
                expected["labels"] = labels["labels"][drawn]
        half = batches.read(kind, step, np.arange(2, PER_STEP))
        for name, values in expected.items():
            np.testing.assert_array_equal(read[name], values)
            np.testing.assert_array_equal(half[name], values[2:])
        widths.add(width)
    assert widths == {32, 64, LENGTH}


class OwnTagging(Tagging):
    """Its rows may have further fields by token."""

    name = "own_tagging"


class OwnCut(Tagging):
    name = "own_cut"
    token_axes = Tagging.token_axes


def test_own_kinds_keep_whole_rows_unless_they_name_their_axes():
    kinds = [f"{__name__}:{name}" for name in ("OwnTagging", "OwnCut")]
    axes = [supervised(kind)(kind=kind).token_axes for kind in kinds]
    assert axes == [{}, Tagging.token_axes]


@pytest.mark.usefixtures("one_device")
@pytest.mark.parametrize("kind", ["tagging", "word_links"])
def test_a_run_has_the_losses_of_whole_rows_with_fewer_operations(
    kind, checkpoint, tmp_path, monkeypatch
):
    config = finetuning.default()
    config.init_from, config.data.cache = str(checkpoint), str(tmp_path / "rows")
    task = config.task
    task.kind, task.length, task.batch_size, config.model.dropout = kind, 64, 4, 0.0
    task.languages = "en" if kind == "tagging" else "en-de"
    task.metric = "tag_accuracy" if kind == "tagging" else ""
    lines = [b"a\tX\nb\tY\n\n" * 12, b"".join(b"%d\tX\n" % i for i in range(45)), b"\n"]
    if kind == "word_links":
        pairs = ["a b\tc d\t0-0 1-1"] * 12 + [f"{'a b ' * 11}\t{'c d ' * 11}\t0-0 20-20"]
        lines = [("\n".join(pairs) + "\n").encode()]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_bytes(b"".join(lines))
        task[split] = f"{tmp_path}/{split}.tsv"
    config.train.steps, config.train.log_every, config.train.eval_every = 6, 1, 6

    def run(name):
        (outcome,) = task_runs.run(finetuning.parse(config), tmp_path / name).runs
        schedule = json.loads((outcome.folder / metrics.SCHEDULE).read_text())
        assert {line[f"length/{kind}"] for line in schedule["lines"]} == {64}
        return [line for line in metrics.read(outcome.folder) if line["step"]]

    cut = run("cut")
    monkeypatch.setattr(row_batches, "_LEAST_WIDTH", 1 << 20)
    whole = run("whole")
    for one, other in zip(cut, whole, strict=True):
        assert one["train/loss"] == pytest.approx(other["train/loss"], rel=1e-5)
    per_step = [np.diff([0, *(line["flops"] for line in lines)]) for lines in (cut, whole)]
    assert len({*per_step[1].round()}) == 1  # whole rows
    ratios = per_step[0] / per_step[1]
    is_whole = np.isclose(ratios, 1)
    assert is_whole.any() and not is_whole.all() and np.all(ratios[~is_whole] < 0.6)
