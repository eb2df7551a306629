"""A run on word links: its scores are those of `xlj align`, its threshold is stored, it resumes."""

import dataclasses
import json

import pytest

import xlj
from xlj import align
from xlj.checkpoints import stored_models
from xlj.config import ConfigError, finetuning
from xlj.conversion.exporting import export
from xlj.finetuning import task_runs


@pytest.fixture
def config(checkpoint, tmp_path):
    config = finetuning.default()
    config.init_from, config.data.cache = str(checkpoint), str(tmp_path / "rows")
    task = config.task
    task.kind, task.languages, task.length, task.batch_size = "word_links", "en-de,en-fr", 32, 16
    for split, count in (("train", 40), ("dev", 12), ("test", 12)):
        for language in ("en-de", "en-fr"):
            examples = xlj.phrasebook.labelled.examples("links", language, split)
            lines = [
                "\t".join([*(" ".join(side) for side in example.words),
                           " ".join(f"{i}-{j}" for i, j in example.links)])
                for _, example in zip(range(count), examples, strict=False)
            ]  # fmt: skip
            (tmp_path / f"{split}.{language}.tsv").write_text("\n".join(lines) + "\n")
        task[split] = f"{tmp_path}/{split}.{{language}}.tsv"
    config.train.steps, config.train.eval_every = 6, 3
    return config


@pytest.mark.slow
def test_scores_equal_those_of_xlj_align_with_the_stored_threshold(config, tmp_path, call, capsys):
    outcome = task_runs.run(finetuning.parse(config), tmp_path / "run")
    (run,) = outcome.runs
    model = stored_models.find(run.folder)
    assert model.task.threshold > 0
    for language in ("en-de", "en-fr"):
        flags = f"--input={tmp_path}/test.{language}.tsv", "--gold"
        printed = call(align.main, f"--checkpoint={run.folder}", *flags)
        scores = json.loads(printed.out)
        assert scores["aer"] == pytest.approx(run.test["aer"][language] / 100, abs=1e-6)
        assert (scores["method"], scores["encode"]) == ("word_links", "together")
        assert scores["threshold"] == model.task.threshold
        assert "the model was trained on word links" in printed.err
    encoder = xlj.load(run.folder)
    pairs = [("the cat sleeps", "die Katze schläft")]
    nulls = encoder.null_probabilities(pairs)
    assert [side.shape for side in nulls[0]] == [(3,), (3,)]
    with pytest.raises(ConfigError, match="use xlj align"):
        encoder.predict(["a\tb"])
    export(str(run.folder), tmp_path / "folder")
    assert "not exported: word_links_head" in capsys.readouterr().out
    again = task_runs.run(finetuning.parse(config), tmp_path / "run")
    assert again.runs == outcome.runs
    untrained = dataclasses.replace(
        finetuning.parse(config),
        init_from=str(run.folder),
        train=dataclasses.replace(finetuning.parse(config).train, steps=0),
    )
    scored = task_runs.run(untrained, tmp_path / "again").runs[0]
    assert scored.test == run.test
