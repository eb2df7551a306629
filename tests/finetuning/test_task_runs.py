"""Fine-tuning learns, chooses a checkpoint by its dev score, scores predictions, and resumes."""

import copy
import dataclasses
import json
import random
import shutil
from pathlib import Path
from typing import NamedTuple

import ml_collections
import numpy as np
import pytest

from xlj import phrasebook
from xlj.checkpoints import metrics, reading, stored_models
from xlj.config import ConfigError, finetuning
from xlj.data.labelled.examples import Question, Sentences, Words
from xlj.data.labelled.features import Features
from xlj.evaluation.metrics import chunk_scores
from xlj.finetuning import task_results, task_runs
from xlj.finetuning.task_data import ExampleSet, TaskData
from xlj.finetuning.task_scores import SCORE
from xlj.tasks.question_answering import QuestionAnswering

pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files in two languages.

    Sentences have the label `cat` or `dog`, which their first letters determine. Words have tags
    that depend on whether the word contains an "e".
    """
    folder = tmp_path_factory.mktemp("task")
    rng = random.Random(0)
    for language in ("en", "de"):
        lines = [line for line in phrasebook.text_lines(language) if line][:300]
        for split, size in (("train", 192), ("dev", 40), ("test", 50)):
            table, columns = [], []
            for line in rng.sample(lines, size):
                label = rng.choice(("cat", "dog"))
                table.append(f"{'a a a a' if label == 'cat' else 'z z z z'} {line}\t{label}\n")
                columns += [f"{word}\t{'B-E' if 'e' in word else 'O'}\n" for word in line.split()]
                columns.append("\n")
            (folder / f"{split}-{language}.tsv").write_text("".join(table), "utf-8")
            (folder / f"{split}-{language}.conll").write_text("".join(columns), "utf-8")
    return folder


def classification_config(files, checkpoint, cache):
    """Returns a config that trains a classifier in English and scores it in both languages."""
    config = finetuning.default()
    config.init_from = str(checkpoint)
    config.data.cache = str(cache)
    for split in ("train", "dev", "test"):
        config.task[split] = f"{files}/{split}-{{language}}.tsv"
    config.task.test_languages = "en,de"
    config.task.length = 32
    config.task.batch_size, config.train.steps, config.train.eval_every = 16, "4ep", "25%"
    config.train.log_every = 12
    config.optimizer.learning_rate = 1e-2
    return config


@pytest.fixture
def settings(files, checkpoint, tmp_path):
    return classification_config(files, checkpoint, tmp_path / "rows")


class FinishedRun(NamedTuple):
    """A finished run that several tests share."""

    settings: ml_collections.ConfigDict
    workdir: Path
    outcome: task_runs.Outcome

    def repeat(self, **changes):
        """Runs once more in the same folder, with some settings changed."""
        settings = copy.deepcopy(self.settings)
        settings.update_from_flattened_dict(changes)
        return task_runs.run(finetuning.parse(settings), self.workdir)


@pytest.fixture(scope="module")
def finished(files, checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("classification")
    settings = classification_config(files, checkpoint, folder / "rows")
    outcome = task_runs.run(finetuning.parse(settings), folder / "run")
    assert outcome.finished and len(outcome.runs) == 1
    return FinishedRun(settings, folder / "run", outcome)


def switch_to_tagging(settings):
    settings.task.kind = "tagging"
    for split in ("train", "dev", "test"):
        settings.task[split] = settings.task[split].replace(".tsv", ".conll")


def test_classification_is_learned(finished):
    assert finished.outcome.runs[0].test["accuracy"]["en"] > 90
    assert 40 < finished.outcome.baseline["accuracy"]["en"] < 65


@pytest.mark.slow
def test_a_reranker_is_trained_on_the_order_of_scores(files, checkpoint, tmp_path):
    for split in ("train", "dev", "test"):
        for language in ("en", "de"):
            table = (files / f"{split}-{language}.tsv").read_text("utf-8")
            scored = table.replace("\tcat\n", "\t100\n").replace("\tdog\n", "\t-100\n")
            (tmp_path / f"{split}-{language}.tsv").write_text(scored, "utf-8")
    settings = classification_config(tmp_path, checkpoint, tmp_path / "rows")
    settings.task.kind, settings.task.loss = "regression", "order"
    (run,) = task_runs.run(finetuning.parse(settings), tmp_path / "run").runs
    assert run.test["spearman"]["en"] > 80
    # Squared errors would pull the outputs towards 100 and -100.
    text = (run.folder / "predictions" / "test-en.tsv").read_text("utf-8")
    assert max(abs(float(line)) for line in text.splitlines()) < 30


def test_the_checkpoint_with_the_best_dev_score_is_scored_and_not_deleted(finished):
    (run,) = finished.outcome.runs
    lines = [line for line in metrics.read(run.folder) if line["step"] and SCORE in line]
    assert [line["step"] for line in lines] == [12, 24, 36, 48]
    best = max(line[SCORE] for line in lines)
    assert {line["step"]: line[SCORE] for line in lines}[run.step] == best
    assert run.step in reading.steps(run.folder)
    assert sum(run.dev["accuracy"].values()) / 2 == pytest.approx(best)
    assert lines[-1]["eval/dev/de/accuracy"] > 0


def test_init_from_is_stored_as_the_path_of_one_checkpoint(finished):
    stored = reading.find(finished.outcome.runs[0].folder).config()
    assert stored["init_from"] == str(reading.find(finished.settings.init_from).folder)
    # 25 % of 48 steps. Any of the evaluated checkpoints can be the best one.
    assert stored["train"]["eval_every"] == stored["train"]["checkpoint_every"] == 12


def test_scores_match_the_written_predictions(finished, files):
    (run,) = finished.outcome.runs
    assert run.test["accuracy"].keys() == {"en", "de"}
    for language, score in run.test["accuracy"].items():
        gold = [
            line.split("\t")[1]
            for line in (files / f"test-{language}.tsv").read_text("utf-8").splitlines()
        ]
        text = (run.folder / "predictions" / f"test-{language}.tsv").read_text("utf-8")
        correct = sum(a == b for a, b in zip(text.splitlines(), gold, strict=True))
        assert score == pytest.approx(100 * correct / len(gold))


def test_a_finished_run_is_not_repeated(finished):
    result = finished.outcome.runs[0].folder / task_runs.RUN
    modified = result.stat().st_mtime_ns
    assert finished.repeat().runs == finished.outcome.runs and result.stat().st_mtime_ns == modified


def test_a_run_without_its_result_file_is_scored_again_with_the_same_result(finished):
    (finished.outcome.runs[0].folder / task_runs.RUN).unlink()
    assert finished.repeat().runs == finished.outcome.runs


def test_keys_without_effect_on_the_result_and_a_moved_encoder_keep_a_run(finished, tmp_path):
    moved = shutil.copytree(reading.find(finished.settings.init_from).folder, tmp_path / "moved")
    changes = {
        "init_from": str(moved),
        "train.log_every": 5,
        "train.damaged_checkpoint": "before",
    }
    assert finished.repeat(**changes).runs == finished.outcome.runs


def test_resuming_with_another_encoder_or_config_is_refused(finished):
    (run,) = finished.outcome.runs
    other = run.folder / "checkpoints" / str(run.step)
    with pytest.raises(ConfigError, match="or another encoder; use another"):
        finished.repeat(init_from=str(other))
    for key, value in (("optimizer.learning_rate", 2e-2), ("task.select", "last")):
        with pytest.raises(ConfigError, match="contains a run with another config"):
            finished.repeat(**{key: value})


@pytest.mark.parametrize(
    "rate, explicit, layers, expected",
    [
        (2e-5, (), 9_999_999, 5e-4),
        (2e-5, (), 10_000_000, 2e-5),
        (2e-5, (), 1_000_000, 5e-4),
        (2e-5, (), 999_999, 1e-3),
        (2e-3, (), 999_999, 2e-3),
        (2e-5, ("optimizer.learning_rate",), 9_999_999, 2e-5),
    ],
)
def test_small_models_have_a_higher_learning_rate_unless_the_user_sets_it(
    settings, monkeypatch, capsys, tmp_path, rate, explicit, layers, expected
):
    """The runs, and thus their identity, have the chosen rate. Embeddings do not count."""
    settings.optimizer.learning_rate = rate
    config = finetuning.parse(settings, explicit)
    prepared = []
    monkeypatch.setattr(task_runs, "_prepare_runs", lambda *args: prepared.append(args) or [])
    sizes = {"embeddings/word": (10**9, 1), "layers/a/kernel": (layers - 4, 1), "layers/b": (4,)}
    leaves = {name: np.broadcast_to(np.float32(0), shape) for name, shape in sizes.items()}
    source = dataclasses.replace(stored_models.find(settings.init_from), leaves=leaves)
    monkeypatch.setattr(stored_models, "find", lambda *_: source)
    outcome = task_runs.run(config, tmp_path)
    assert outcome.learning_rate == prepared[0][0].optimizer.learning_rate == expected
    printed = [x for x in capsys.readouterr().out.splitlines() if x.startswith("learning rate")]
    if explicit or expected == rate:
        assert not printed
    else:
        assert printed[0].startswith(
            f"learning rate {expected:g}: the layers of the model have {layers:,} parameters, "
            f"and the config has {rate:g} (at least 0.0005 below 10,000,000 and at least 0.001 "
        )


def test_results_are_summarised_and_written_for_xtreme(finished, tmp_path):
    config, (run,) = finetuning.parse(finished.settings), finished.outcome.runs
    content = task_results.as_json("animals", config, finished.outcome)
    assert content["learning_rate"] == 1e-2
    assert content["languages"] == {k: round(v, 4) for k, v in run.test["accuracy"].items()}
    gap = run.test["accuracy"]["en"] - run.test["accuracy"]["de"]
    assert content["transfer_gap"] == pytest.approx(gap, abs=1e-4)
    assert "| accuracy | " in task_results.as_markdown("animals", config, finished.outcome)
    head, _, sentence, _, columns, *lines = task_results.as_text(
        "animals", config, finished.outcome
    ).split("\n")
    assert head == "animals" and "scores in percent" in sentence
    assert columns.split() == ["accuracy", "most", "frequent:", "accuracy"]
    run = finished.outcome.runs[0].test["accuracy"]
    assert {line.split()[0] for line in lines} >= {*run, "average"}
    assert f"{run['en']:.1f}" == lines[0].split()[1]
    assert not any(line.startswith("warning") for line in lines)
    better = dataclasses.replace(finished.outcome, baseline={"accuracy": run})
    *_, warning = task_results.as_text("animals", config, better).split("\n")
    assert warning.startswith("warning: the mean of accuracy is not above the baseline")
    better = dataclasses.replace(finished.outcome, baseline={"other": run})
    assert "warning" not in task_results.as_text("animals", config, better)
    output = tmp_path / "submission"
    folder, others = task_results.submit(output, "animals", config, finished.outcome)
    assert sorted(p.name for p in folder.iterdir()) == ["test-de.tsv", "test-en.tsv"] and not others
    (folder / "test-fr.tsv").touch()
    others = task_results.submit(output, "animals", config, finished.outcome)[1]
    assert [path.name for path in others] == ["test-fr.tsv"]


@pytest.mark.slow
def test_pairs_that_are_encoded_separately_are_learned(settings, tmp_path):
    """The label is `same` if both sentences begin with the same letters, so it depends on both."""
    rng = random.Random(1)
    lines = [line for line in phrasebook.text_lines("en") if line and len(line) < 40][:200]
    for split, size in (("train", 384), ("dev", 40), ("test", 100)):
        text = ""
        for _ in range(size):
            starts = [rng.choice(("a a a a", "z z z z")) for _ in range(2)]
            sides = [f"{start} {rng.choice(lines)}" for start in starts]
            text += "\t".join([*sides, "same" if len(set(starts)) == 1 else "other"]) + "\n"
        (tmp_path / f"{split}-en.tsv").write_text(text)
        settings.task[split] = f"{tmp_path}/{split}-{{language}}.tsv"
    settings.task.test_languages, settings.task.pairs, settings.task.length = "en", "apart", 64
    (run,) = task_runs.run(finetuning.parse(settings), tmp_path / "run").runs
    assert run.test["accuracy"]["en"] > 80


def test_labels_in_only_one_file_of_a_language_are_an_error(settings, tmp_path):
    for name, label in (("one", "cat"), ("two", "-")):
        (tmp_path / f"{name}-en.tsv").write_text(f"a\t{label}\n")
    settings.task.test = f"{tmp_path}/one-{{language}}.tsv,{tmp_path}/two-{{language}}.tsv"
    settings.task.test_languages = "en"
    with pytest.raises(ConfigError, match=r"two-en.tsv:1: this example has no label, but .*one-en"):
        task_runs.run(finetuning.parse(settings), tmp_path / "run")


def test_chunk_f1_with_tags_that_are_not_chunk_tags_is_refused(settings, tmp_path):
    switch_to_tagging(settings)
    (tmp_path / "en.conll").write_text("Ann\tPER\nleft\tO\n\nIBM\tORG\n")
    settings.task.train = settings.task.dev = settings.task.test = f"{tmp_path}/{{language}}.conll"
    settings.task.test_languages = "en"
    with pytest.raises(
        ConfigError, match=r"en.conll:1: 'PER' is not a chunk tag, but task.metric=chunk_f1"
    ):
        task_runs.run(finetuning.parse(settings), tmp_path / "run")


def test_an_empty_sentence_is_refused_if_pairs_are_encoded_separately(settings, tmp_path):
    (tmp_path / "train-en.tsv").write_text("a\tb\tsame\n \tb\tother\n")
    settings.task.train = f"{tmp_path}/train-{{language}}.tsv"
    settings.task.dev = settings.task.test = settings.task.train
    settings.task.test_languages, settings.task.pairs = "en", "apart"
    with pytest.raises(ConfigError, match=r"en.tsv:2: a sentence is empty, but task.pairs=apart"):
        task_runs.run(finetuning.parse(settings), tmp_path / "run")


@pytest.mark.slow
def test_each_language_has_its_own_model_for_each_seed(settings, tmp_path):
    settings.task.languages, settings.task.test_languages = "en,de", ""
    settings.task.per_language = True
    settings.task.select = "last"
    settings.task.seeds, settings.train.steps, settings.train.eval_every = 2, "1ep", "100%"
    config = finetuning.parse(settings)
    outcome = task_runs.run(config, tmp_path / "run")
    folders = [run.folder.name for run in outcome.runs]
    assert folders == ["en-seed-0", "en-seed-1", "de-seed-0", "de-seed-1"]
    assert all(tuple(run.test["accuracy"]) == run.languages for run in outcome.runs)
    seeds = task_results.by_seed(outcome, "test")
    assert len(seeds) == 2 and set(seeds[0]["accuracy"]) == {"en", "de"}
    content = task_results.as_json("x", config, outcome)
    values = [scores["accuracy"]["de"] for scores in seeds]
    assert content["languages"]["de"] == pytest.approx(sum(values) / 2, abs=1e-4)
    assert content["transfer_gap"] is None  # models are trained on each language
    assert content["deviations"]["de"] == pytest.approx(
        abs(values[0] - values[1]) / 2**0.5, abs=1e-4
    )


def test_errors_of_any_language_are_reported_before_the_first_language_is_trained(
    settings, files, tmp_path
):
    for split in ("train", "dev", "test"):
        for language in ("en", "de"):
            text = (files / f"{split}-{language}.tsv").read_text("utf-8")
            if (split, language) == ("train", "de"):  # one batch, so one step
                text = "".join(text.splitlines(keepends=True)[:16])
            (tmp_path / f"{split}-{language}.tsv").write_text(text, "utf-8")
        settings.task[split] = f"{tmp_path}/{split}-{{language}}.tsv"
    settings.task.languages, settings.task.test_languages = "en,de", ""
    settings.task.per_language, settings.train.steps = True, "1ep"
    settings.optimizer.schedule, settings.optimizer.decay_steps = "wsd", 8
    with pytest.raises(ConfigError, match="decay_steps=8 is more than the 1 steps"):
        task_runs.run(finetuning.parse(settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_tagging_of_long_sentences(settings, files, tmp_path):
    """Rows of 16 tokens: most sentences are split; every word has its tag."""
    switch_to_tagging(settings)
    settings.task.length = 16
    outcome = task_runs.run(finetuning.parse(settings), tmp_path / "run")
    (run,) = outcome.runs
    assert run.test["chunk_f1"]["en"] > 80 and outcome.baseline["chunk_f1"]["en"] > 80

    def sentences(text):
        return [block.split("\n") for block in text.strip().split("\n\n")]

    text = (run.folder / "predictions" / "test-de.tsv").read_text("utf-8")
    gold = sentences((files / "test-de.conll").read_text("utf-8"))
    gold = [[line.split("\t")[1] for line in lines] for lines in gold]
    scores = chunk_scores(sentences(text), gold)  # raises an error if the numbers of words differ
    assert run.test["chunk_f1"]["de"] == pytest.approx(100 * scores.f1)


def test_freezing_fresh_weights_is_refused(settings):
    settings.transfer.parts, settings.optimizer.frozen = "", "embeddings"
    with pytest.raises(
        ConfigError, match="frozen=embeddings would not train .*; add --config.optimizer.frozen="
    ):
        finetuning.parse(settings)


@pytest.mark.slow
def test_with_fresh_weights_no_checkpoint_is_loaded(settings, tmp_path):
    settings.transfer.parts = ""
    settings.train.steps, settings.train.eval_every = "1ep", "100%"
    outcome = task_runs.run(finetuning.parse(settings), tmp_path / "run")
    assert reading.find(outcome.runs[0].folder).config()["init_from"] == ""


@pytest.mark.slow
def test_a_test_set_without_labels_is_predicted(settings, files, tmp_path, capsys):
    unlabelled = tmp_path / "bare.tsv"
    lines = (files / "test-en.tsv").read_text("utf-8").splitlines()
    unlabelled.write_text("".join(line.split("\t")[0] + "\t-\n" for line in lines), "utf-8")
    settings.task.test, settings.task.test_languages = str(unlabelled), "en"
    settings.task.columns = ""
    settings.train.steps, settings.train.eval_every = "1ep", "100%"
    settings.optimizer.warmup_steps = 12_500
    config = finetuning.parse(settings)
    outcome = task_runs.run(config, tmp_path / "run")
    stdout = capsys.readouterr().out
    assert "examples cut, no labels: predicted, not scored\n" in stdout
    assert (
        "warmup_steps=12500 is more than the 12 steps of train.steps=1ep; warming up for 10% of "
        in stdout
    )
    (run,) = outcome.runs
    assert not run.test and set(run.dev["accuracy"]) == {"en"}
    labels = (run.folder / "predictions" / "test-en.tsv").read_text("utf-8").split()
    assert len(labels) == 50 and set(labels) <= {"cat", "dog"}
    content = task_results.as_json("x", config, outcome)
    assert content["split"] == "dev" and set(content["baseline"]["accuracy"]) == {"en"}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("task.length", 600, "exceeds the model's positions"),
        ("task.labels", "cat,cow", "train-en.tsv:.*'dog' is not a label of the task"),
        ("task.train", "nowhere-{language}.tsv", "task.train=nowhere-.* tried nowhere-en.tsv"),
        ("init_from", "nowhere", "init_from=nowhere contains no model; expected"),
        ("train.steps", "6tok", "train.steps=6tok: fine-tuning counts steps or passes"),
        ("optimizer.decay_steps", 99, "decay_steps=99 is more than the 48 steps"),
        ("optimizer.decay_steps", 44, "5 steps of warm-up and optimizer.decay_steps=44 are more"),
        (
            "task.pairs",
            "apart",
            "train-en.tsv:1: the example has one sentence, but task.pairs",
        ),
        (
            "task.batch_size",
            12,
            "task.batch_size=12 / train.gradient_accumulation_steps=1 = 12 rows are not",
        ),
    ],
)
def test_invalid_options_and_data_are_refused_before_training(
    settings, tmp_path, key, value, message, devices
):
    devices(8)
    settings.update_from_flattened_dict({key: value})
    settings.optimizer.schedule = "wsd" if "decay" in key else "linear"
    with pytest.raises(ConfigError, match=message):
        task_runs.run(finetuning.parse(settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"init_from": ""}, "init_from is empty"),
        ({"task.dev": ""}, "task.select=all selects a checkpoint on dev"),
        ({"task.metric": "squad"}, "task.metric=squad is not a metric of task.kind=classification"),
        ({"task.answer_length": 3}, "task.answer_length is set to 3 but has no effect"),
        ({"train.gradient_accumulation_steps": 3}, "not divisible"),
        ({"task.pooling": "mean", "task.pairs": "apart"}, "task.pairs=apart, the head reads the"),
        ({"task.pooling": "mean", "train.steps": 0}, "task.pooling=mean: train.steps=0 scores"),
        (
            {"task.kind": "tagging", "task.pooling": "mean"},
            "task.pooling is set to 'mean' but has no effect",
        ),
        (
            {"task.kind": "tagging", "task.pairs": "apart"},
            "task.pairs is set to 'apart' but has no effect",
        ),
        (
            {"task.per_language": True, "task.languages": "en,de", "task.dev_languages": "en"},
            "task.dev has the languages en and task.languages is en, de",
        ),
        (
            {"task.per_language": True, "task.dev_languages": "en"},
            "task.test has the languages en, de and",
        ),
    ],
)
def test_contradictory_configs_are_refused(settings, changes, message):
    settings.update_from_flattened_dict(changes)
    with pytest.raises(ConfigError, match=message):
        finetuning.parse(settings)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"task.dev": "", "task.select": "last", "task.dev_languages": "en"}, "task.dev"),
        ({"task.test": "", "task.dev_languages": "en"}, "task.test"),
    ],
)
def test_languages_of_an_empty_split_are_an_error_only_if_the_user_set_them(settings, changes, key):
    settings.update_from_flattened_dict(changes)
    # No error: a recipe may set the languages of a split, and the user may empty the split.
    finetuning.parse(settings)
    with pytest.raises(ConfigError, match=f"{key}_languages is set .* because {key} is empty"):
        finetuning.parse(settings, [f"{key}_languages"])


@pytest.mark.slow
def test_a_killed_run_resumes_with_the_same_result(settings, tmp_path, monkeypatch):
    config = finetuning.parse(settings)
    whole = task_runs.run(config, tmp_path / "whole").runs[0]

    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    folder = tmp_path / "killed" / "seed-0"
    (folder / task_runs.RUN).unlink()
    remaining = [s for s in reading.steps(folder) if s != 48]
    if remaining:  # otherwise the last checkpoint was the best
        shutil.rmtree(folder / "checkpoints" / "48")
    settings.init_from = str(tmp_path / "moved")  # the same encoder in another folder
    (tmp_path / "moved").symlink_to(config.init_from)
    config = finetuning.parse(settings)
    resumed = task_runs.run(config, tmp_path / "killed").runs[0]
    assert json.dumps(resumed.test) == json.dumps(whole.test) and resumed.step == whole.step


def _make_outcome(folder, *runs):
    """Makes an outcome from (languages, dev scores, test scores) of each run.

    The predictions of a run contain only its seed.
    """
    made = []
    for seed, (languages, dev, test) in enumerate(runs):
        made.append(task_runs.TaskRun(languages, seed, 1, dev, test, folder / f"seed-{seed}"))
        (made[-1].folder / "predictions").mkdir(parents=True)
        (made[-1].folder / "predictions" / "test-de.json").write_text(f"{seed}", "utf-8")
    return task_runs.Outcome(tuple(made), {}, True, 1e-3)


@pytest.mark.parametrize(("select", "best"), [("all", "1"), ("trained", "2")])
def test_the_submitted_seed_is_chosen_by_the_rule_that_chooses_checkpoints(
    settings, tmp_path, select, best
):
    """The rule uses the first metric, also if the task's metric is a set of rules (squad, mlqa)."""
    settings.task.kind, settings.task.select = "question_answering", select
    dev = [{"f1": {"en": en, "de": de}} for en, de in ((50.0, 50.0), (60.0, 70.0), (65.0, 10.0))]
    outcome = _make_outcome(tmp_path, *((("en",), scores, {}) for scores in dev))
    config = finetuning.parse(settings)
    folder, _ = task_results.submit(tmp_path / "out", "xquad", config, outcome)
    assert (folder / "test-de.json").read_text("utf-8") == best


def test_only_languages_with_test_labels_have_results(settings, tmp_path):
    config = finetuning.parse(settings)
    outcome = _make_outcome(tmp_path, (("en",), {}, {}), (("de",), {}, {"accuracy": {"de": 50.0}}))
    assert task_results.as_json("x", config, outcome)["languages"] == {"de": 50.0}
    assert "| accuracy | 50.0 | 50.0 |" in task_results.as_markdown("x", config, outcome)
    assert task_results.panels(outcome) == {"accuracy": {"de": 50.0}}
    assert task_results.panels(_make_outcome(tmp_path / "none", (("en",), {}, {}))) == {}


def test_questions_without_an_answer_are_counted():
    questions = [
        Question(f"{i}", "?", "c", answers, "") for i, answers in enumerate(((("c", 0),), ()))
    ]
    features = Features(np.zeros((2, 4)), np.zeros((2, 2)), {})
    data = TaskData(
        QuestionAnswering(),
        (),
        {"en": ExampleSet(questions, features)},
        {},
        {"en": ExampleSet(questions[1:], features)},
    )
    first, second = data.counts().splitlines()
    assert first.endswith("2 rows, 1 without an answer, which task.no_answer allows")
    assert second.endswith("2 rows, no labels: predicted, not scored")


def test_an_answer_that_normalisation_empties_counts_as_no_answer():
    """As in SQuAD 2.0's script, which compares normalized answers."""
    questions = [
        Question(f"{i}", "?", "c", answers, "") for i, answers in enumerate(((("c", 0),), ()))
    ]
    for answer, correct in (("", 1), ("The.", 1), ("c", 0)):
        scores = QuestionAnswering().scores({"0": "c", "1": answer}, questions, "squad", "en")
        assert scores == {"f1": (1 + correct) / 2, "exact_match": (1 + correct) / 2}


@pytest.mark.parametrize("split", ["train", "dev"])
def test_train_and_dev_sets_without_any_answer_are_refused(settings, tmp_path, split):
    for name in ("train", "dev", "test"):
        answers = [{"text": "Ada", "answer_start": 0}] if name != split else []
        question = {"id": "1", "question": "Who?", "answers": answers}
        paragraph = {"context": "Ada came.", "qas": [question]}
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}), "utf-8")
        settings.task[name] = str(file)
    settings.task.kind, settings.task.test_languages = "question_answering", "en"
    settings.task.stride, settings.task.question_length, settings.task.answer_length = 8, 4, 4
    with pytest.raises(ConfigError, match=rf"no question of task.{split} in en has an answer"):
        task_runs.run(finetuning.parse(settings), tmp_path / "run")


def test_the_identity_of_a_run_ignores_files_and_lines_of_its_examples():
    """So a run that started before words had line numbers can resume."""
    words = [Words(("a",), ("X",), place, lines) for place, lines in (("f:1", (1,)), ("g:7", (7,)))]
    assert [example.content for example in words] == [[("a",), ("X",)]] * 2
    assert Sentences(("a",), "x", "f:1").content == [("a",), "x"]
    question = Question("1", "?", "a b", (("a", 0),), "f: data[0]")
    assert question.content == ["1", "?", "a b", (("a", 0),)]


def test_the_table_of_a_head_that_was_not_trained_says_so(settings, tmp_path):
    settings.train.steps = 0
    outcome = _make_outcome(tmp_path, (("en",), {}, {"accuracy": {"en": 50.0}}))
    table = task_results.as_markdown("x", finetuning.parse(settings), outcome)
    assert ", without further training; test scores in percent.\n" in table
