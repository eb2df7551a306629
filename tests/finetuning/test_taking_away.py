"""A fine-tuned model is exported for transformers, and other runs start from the export."""

import copy
import json
import random

import pytest

from xlj import convert, phrasebook
from xlj.checkpoints import reading, stored_models
from xlj.config import ConfigError, finetuning
from xlj.finetuning import task_runs

pytestmark = pytest.mark.usefixtures("one_device")


def export(checkpoint, output):
    assert convert.main(["export", f"--checkpoint={checkpoint}", f"--output={output}"]) == 0


def pairs(size, seed):
    """Yields (A, B, label); the first letters of sentence A determine the label."""
    rng = random.Random(seed)
    lines = [line for line in phrasebook.text_lines("en") if line and len(line) < 60][:200]
    for _ in range(size):
        label = rng.choice(("cat", "dog"))
        start = "a a a a" if label == "cat" else "z z z z"
        yield f"{start} {rng.choice(lines)}", rng.choice(lines), label


@pytest.fixture(scope="module")
def fine_tuned(checkpoint, tmp_path_factory):
    """(config, workdir) of a slightly trained classifier of pairs."""
    folder = tmp_path_factory.mktemp("taken")
    config = finetuning.default()
    config.init_from, config.data.cache = str(checkpoint), str(folder / "rows")
    for seed, (split, size) in enumerate((("train", 96), ("dev", 20), ("test", 40))):
        text = "".join("\t".join(line) + "\n" for line in pairs(size, seed))
        (folder / f"{split}-en.tsv").write_text(text)
        config.task[split] = f"{folder}/{split}-{{language}}.tsv"
    config.task.length, config.task.labels = 96, "dog,cat"
    config.task.batch_size, config.train.steps, config.train.eval_every = 16, "5ep", "50%"
    config.optimizer.learning_rate = 1e-2
    outcome = task_runs.run(finetuning.parse(config), folder / "run")
    assert 60 < outcome.runs[0].test["accuracy"]["en"]
    return config, folder / "run"


@pytest.mark.slow
def test_a_model_that_encodes_pairs_separately_is_exported_without_its_head(
    fine_tuned, tmp_path, capsys
):
    config = copy.deepcopy(fine_tuned[0])
    config.task.pairs, config.train.steps = "apart", "1ep"
    task_runs.run(finetuning.parse(config), tmp_path / "run")
    export(tmp_path / "run" / "seed-0", tmp_path / "out")
    assert (
        "transformers has no class that encodes two sentences separately" in capsys.readouterr().out
    )
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["architectures"] == ["XLMRobertaModel"]


@pytest.mark.slow
def test_the_exported_folder_describes_labels_data_and_scores(fine_tuned, tmp_path, capsys):
    _, workdir = fine_tuned
    export(workdir / "seed-0", tmp_path / "out")
    assert "AutoModelForSequenceClassification" in capsys.readouterr().out
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["XLMRobertaForSequenceClassification"]
    assert config["id2label"] == {"0": "dog", "1": "cat"}
    assert config["label2id"] == {"dog": 0, "cat": 1}
    assert config["problem_type"] == "single_label_classification"
    run = json.loads((workdir / "seed-0" / "run.json").read_text())
    card = (tmp_path / "out" / "README.md").read_text()
    assert "pipeline_tag: text-classification" in card and "- 'en'" in card
    assert "Labels: `dog`, `cat`." in card and "en (96 rows), with at most 96 tokens" in card
    accuracies = [run[split]["accuracy"]["en"] for split in ("dev", "test")]
    assert f"| en | {accuracies[0]:.1f} | {accuracies[1]:.1f} |" in card


@pytest.mark.slow
def test_the_scored_checkpoint_is_exported_and_no_other_gets_its_scores(
    fine_tuned, tmp_path, capsys
):
    _, workdir = fine_tuned
    run = json.loads((workdir / "seed-0" / "run.json").read_text())
    assert stored_models.find(workdir / "seed-0").checkpoint.step == run["step"]
    run_copy = tmp_path / "seed-0"
    (run_copy / "checkpoints").mkdir(parents=True)
    for step in reading.steps(workdir / "seed-0"):
        (run_copy / "checkpoints" / str(step)).symlink_to(
            workdir / "seed-0" / "checkpoints" / str(step)
        )
    (run_copy / "run.json").write_text(json.dumps(run | {"step": 1}))
    export(f"{run_copy}/checkpoints/{run['step']}", tmp_path / "out")
    assert f"belong to step 1, not to step {run['step']}" in capsys.readouterr().out
    assert "## Scores" not in (tmp_path / "out" / "README.md").read_text()
    for damaged in ("{", '{"step": 1}'):
        (run_copy / "run.json").write_text(damaged)
        with pytest.raises(ConfigError, match="run.json is damaged"):
            stored_models.find(run_copy)


@pytest.mark.slow
def test_a_workdir_of_several_runs_is_refused_with_their_names(fine_tuned):
    _, workdir = fine_tuned
    with pytest.raises(
        ConfigError,
        match=f"--checkpoint={workdir} .*contains models; name one of them: {workdir}/seed-0",
    ):
        stored_models.find(workdir, "--checkpoint")


@pytest.mark.slow
@pytest.mark.parity
def test_the_pipeline_gives_the_labels_that_xlj_predicts(fine_tuned, tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    _, workdir = fine_tuned
    export(workdir / "seed-0", tmp_path / "out")
    classify = transformers.pipeline("text-classification", str(tmp_path / "out"))
    texts = [{"text": a, "text_pair": b} for a, b, _ in pairs(40, 2)]
    actual = [answer["label"] for answer in classify(texts)]
    predicted = (workdir / "seed-0" / "predictions" / "test-en.tsv").read_text().splitlines()
    assert actual == predicted and len({*actual}) == 2


@pytest.mark.slow
def test_a_run_that_starts_from_the_exported_folder_uses_its_head(fine_tuned, tmp_path, capsys):
    config, workdir = fine_tuned
    export(workdir / "seed-0", tmp_path / "out")
    config = config.copy_and_resolve_references()
    config.init_from, config.train.steps, config.train.eval_every = (
        str(tmp_path / "out"),
        "0.1ep",
        "100%",
    )
    for labels, is_new in (("dog,cat", False), ("cat,dog", True)):
        config.task.labels = labels
        capsys.readouterr()
        outcome = task_runs.run(finetuning.parse(config), tmp_path / labels)
        stdout = capsys.readouterr().out
        assert ("newly initialised: classification_head" in stdout) == is_new
        assert ("not used: classification_head" in stdout) == is_new
        assert outcome.finished
