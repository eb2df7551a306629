"""An adaptation reads a folder and writes another; finished parts are not repeated."""

import dataclasses
import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from dense_modules import with_dense

import xlj
from xlj import adapt, convert
from xlj.adaptation import sentences, stages
from xlj.adaptation.pieces import Choice
from xlj.adaptation.stages import AdaptRequest, Folders
from xlj.checkpoints import metrics, stored_models
from xlj.checkpoints.stored_models import Leaf
from xlj.checkpoints.workdir import LOCK
from xlj.config import ConfigError, parse
from xlj.data.rows.building import TextSample
from xlj.data.text.cleaning import line_hashes
from xlj.evaluation.adaptation_record import FILE, LABELS
from xlj.evaluation.probes import Files
from xlj.inference.pretrained import Pretrained
from xlj.interop.sentence_modules import Dense, SentenceModules
from xlj.retrieval import search


@pytest.fixture(scope="module")
def folder(checkpoint, tmp_path_factory):
    """`checkpoint` as a sentence-transformers folder, with random weights and English and German
    pieces."""
    path = tmp_path_factory.mktemp("adapted") / "source"
    command = ["export", f"--checkpoint={checkpoint}", f"--output={path}", "--pooling=mean"]
    assert convert.main(command) == 0
    (path / "README.md").write_text("---\nlanguage: fr\n---\n", "utf-8")
    return path


@pytest.fixture
def arguments(folder, corpus, rows_folder):
    return [
        f"--from={folder}", "--languages=sw", f"--mono={corpus}/mono/{{language}}.txt",
        "--pairs=en-sw", f"--parallel={corpus}/pairs/{{pair}}.tsv", "--replay=en,de",
        "--pieces=40", f"--config.data.cache={rows_folder}", "--config.data.length=32",
        "--config.data.held_out_share=0.1",
    ]  # fmt: skip


SHORT = [
    "--steps=10", "--config.objectives.mmlm.batch_size=8", "--config.objectives.tlm.batch_size=8",
    "--config.objectives.retrieval.batch_size=8", "--config.optimizer.learning_rate=1e-3",
]  # fmt: skip


@pytest.mark.slow
def test_a_dry_run_prints_the_plan_and_does_not_train(call, arguments, tmp_path, monkeypatch):
    printed = call(adapt.main, *arguments, f"--output={tmp_path}/out", "--dry_run").out
    assert "vocabulary: 302 -> 342 ids" in printed
    assert "sw" in printed and "as requested" in printed
    assert re.search(r"first +0 to 1\d\d ", printed)
    assert re.search(r"\nsw +\d.\d\d -> \d.\d\d +[\d.]+% -> [\d.]+% +40\n", printed)
    assert (
        "\nno more pieces for sw: as requested\nthe model has no head for masked words: the "
        "training starts with a new one\nsentence vectors: the modules of --"
    ) in printed
    (forgotten,) = re.findall(
        r"warning: without replay the model forgets more of (\S+), which", printed
    )
    assert forgotten == "fr"  # which the card of the source lists
    (passes,) = re.findall(r"passes over the text of the new languages: (\S+)", printed)
    assert 19 < float(passes) <= 20
    assert "\ncost: about" in printed
    assert "held-out lines, so its held-out loss is imprecise" in printed
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"extended", "adaptation.json"}
    assert not (tmp_path / "out/run").exists()
    (line,) = re.findall(r"\ntext\.sw .*", printed)
    drawn = re.findall(r"([\d.]+)%", line)[-1]  # the last column of the report before the reasons
    assert 69 < float(drawn) < 71  # --replay_share is 0.3

    # Nothing is trained yet, so other options start over in the same folder, even if the command
    # is killed before the new model replaces the old one.
    more = ("--pieces=50", "--config.data.held_out_share=0.2")

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stages.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            adapt.main([*arguments, *more, f"--output={tmp_path}/out", "--dry_run"])
    again = call(adapt.main, *arguments, *more, f"--output={tmp_path}/out", "--dry_run").out
    assert "vocabulary: 302 -> 352 ids" in again
    record = json.loads((tmp_path / "out/adaptation.json").read_text())
    assert record["request"]["pieces"] == 50
    text = [flag for flag in arguments if not flag.startswith(("--pairs=", "--parallel="))]
    alone = call(adapt.main, *text, f"--output={tmp_path}/text", "--dry_run").out
    lost = "\nwarning: text alone destroys the sentence vectors of --from; name --pairs"
    assert lost in alone and lost not in printed
    assert stored_models.find(tmp_path / "out/extended").vocabulary().size == 352


WEIGHTED = ("extended", "model", "run")
"""The folders of the model before the training, the adapted model, and the trained model."""


@pytest.mark.slow
def test_an_adaptation_measures_reports_and_exports(call, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stages, "_HELD_OUT", 12)  # few lengths, so few compiled programs
    measured, find_text = [], stages._test_text
    monkeypatch.setattr(
        stages, "_test_text", lambda *of: measured.append(find_text(*of)) or measured[-1]
    )
    printed = call(adapt.main, *arguments, *SHORT, "--output=out").out
    record = json.loads((tmp_path / "out/adaptation.json").read_text())
    assert json.loads((tmp_path / "out/run/adaptation.json").read_text()) == record
    before, after = record["before"], record["after"]
    assert list(after) == list(LABELS)
    # A folder for sentence-transformers has no head for masked words, so it has no loss.
    assert list(before) == [name for name in LABELS if name != "nats_per_character"]
    for name, values in [*before.items(), *after.items()]:
        assert set(values) == ({"en-sw"} if name == "accuracy_percent" else {"sw", "en", "de"})
    assert after["pieces_per_word"]["sw"] < 0.9 * before["pieces_per_word"]["sw"]
    # A character has at most one piece, so chance is at most the logarithm of the vocabulary.
    assert 0 < after["nats_per_character"]["sw"] < np.log(342)
    assert f"{after['nats_per_character']['sw']:.3f}" in printed
    assert "Before and after" in (tmp_path / "out/report.html").read_text()
    card = (tmp_path / "out/model/README.md").read_text()
    assert "- 'fr'\nlibrary_name" in card  # the card of --from lists it
    assert "# out\n" in card and "to sw, with text of en, de" in card
    assert 'SentenceTransformer("out/model")' in card
    source = arguments[0].removeprefix("--from=")
    assert f"Training started from `{source}`" in card and "extended" not in card
    trained = stored_models.find(tmp_path / "out/run")
    assert trained.vocabulary().size == 342
    config = trained.checkpoint.config()
    assert config["train"]["steps"] == 10
    assert config["optimizer"]["decay_steps"] == 2
    assert [name.partition("=")[0] for name in config["data"]["sampled"]] == ["sw", "en", "de"]
    assert config["objectives"]["retrieval"]["layer"] == trained.model.layers
    adapted, held_out = xlj.load(tmp_path / "out/model"), measured[0].pairs["en-sw"]
    assert adapted.pretrained.sentence == xlj.load(source).pretrained.sentence
    found = search.accuracy(search.nearest(*map(adapted.embed, held_out)))
    assert after["accuracy_percent"]["en-sw"] == pytest.approx(50 * sum(found))

    # A second call does only what is missing.
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/run/checkpoints").iterdir()}
    shutil.rmtree(tmp_path / "out/model")
    (tmp_path / "out/report.html").unlink()
    again = call(adapt.main, *arguments, *SHORT, "--output=out").out
    assert again.split("\nmeasure")[1] == printed.split("\nmeasure")[1]
    assert (tmp_path / "out/model/README.md").read_text() == card
    assert times == {path: path.stat().st_mtime_ns for path in times}

    # Other options need another folder, and a dry run says so too.
    with pytest.raises(ConfigError, match=r"other options \(pieces: 40, now 50\)"):
        call(adapt.main, *arguments, *SHORT, "--pieces=50", "--output=out", "--dry_run")
    refused = r"training run with other options \(.*decay_steps: 2 -> 4.*name a new --output"
    with pytest.raises(ConfigError, match=refused):
        call(adapt.main, *arguments, *SHORT, "--steps=20", "--output=out", "--dry_run")
    with pytest.raises(ConfigError, match="out is not a model, but .*: .*out/model, .*out/run"):
        xlj.load(tmp_path / "out")

    # The same folder may have another spelling.
    same = call(adapt.main, *arguments, *SHORT, f"--output={tmp_path}/../{tmp_path.name}/out").out
    assert (
        same.split("\nmeasure")[1].split("\nreport")[0]
        == (printed.split("\nmeasure")[1].split("\nreport")[0])
    )

    # With another weight of the model before, the trained model is only measured and exported.
    weighted = call(adapt.main, *arguments, *SHORT, "--before_weight=0.25", "--output=out").out
    assert "\nadapted parameters: 0.25 times those before the training and 0.75 " in weighted
    assert "The parameters are 0.25 times" in (tmp_path / "out/model/README.md").read_text()
    assert times == {path: path.stat().st_mtime_ns for path in times}
    assert json.loads((tmp_path / "out/adaptation.json").read_text())["after"] != after
    three = [stored_models.find(tmp_path / "out" / each).leaves for each in WEIGHTED]
    for name, (start, mean, end) in ((n, [each[n] for each in three]) for n in three[1]):
        expected = 0.25 * np.asarray(start) + 0.75 * np.asarray(end)
        np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6, err_msg=name)

    # Measures and an export that come from fewer steps are repeated.
    stale = record | {"step": 3, "after": {"accuracy_percent": {"en-sw": 12.5}}}
    (tmp_path / "out/adaptation.json").write_text(json.dumps(stale))
    (tmp_path / "out/model/README.md").write_text("old")
    call(adapt.main, *arguments, *SHORT, "--output=out")
    assert json.loads((tmp_path / "out/adaptation.json").read_text()) == record
    assert (tmp_path / "out/model/README.md").read_text() == card


@pytest.mark.slow
def test_a_sentence_encoder_gets_a_language_and_keeps_its_space(
    call, arguments, folder, tmp_path, monkeypatch
):
    """The vectors of the new language approach those of English, and old vectors hardly move."""
    monkeypatch.setattr(stages, "_HELD_OUT", 12)
    short = [
        "--steps=40", "--config.objectives.sentence_distillation.batch_size=16",
        "--config.objectives.text_distillation.batch_size=16", "--prompt=a ",
        "--config.optimizer.learning_rate=1e-3", "--sentences", f"--output={tmp_path}/out",
    ]  # fmt: skip
    plan = call(adapt.main, *arguments, *short, "--dry_run").out
    assert "the teacher is --from" in plan and "warning: without --replay" not in plan
    assert re.search(r"\ntaught_text.en ", plan) and "taught_text.sw" not in plan
    printed = call(adapt.main, *arguments, *short).out
    assert "accuracy@1" in printed
    trained = stored_models.find(tmp_path / "out/run").checkpoint.config()
    for name in ("sentence_distillation", "text_distillation"):
        own = trained["objectives"][name]
        assert (own["loss"], own["pooling"], own["prompt"]) == ("squared", "mean", "a ")
    lines = metrics.read(tmp_path / "out/run")
    first, last = lines[0], [line for line in lines if "eval/text_distillation/loss" in line][-1]
    key = "eval/sentence_distillation/loss"
    assert last[key] < 0.9 * first[key]
    before, after = xlj.load(folder), xlj.load(tmp_path / "out/model")
    assert after.pretrained.sentence == before.pretrained.sentence
    record = json.loads((tmp_path / "out/adaptation.json").read_text())
    assert record["after"]["accuracy_percent"].keys() == {"en-sw"}


@pytest.mark.slow
def test_a_dense_module_is_part_of_the_student_and_stays(call, arguments, folder, tmp_path):
    """Before the first step, the student's vectors of old text are those of the teacher."""
    arguments[0] = f"--from={with_dense(folder, tmp_path / 'dense')}"
    short = ["--steps=6", "--config.train.eval_every=6", f"--output={tmp_path}/out", "--sentences"]
    short += ["--config.mesh.fsdp=2"]
    short += [f"--config.objectives.{n}_distillation.batch_size=8" for n in ("sentence", "text")]
    call(adapt.main, *arguments, *short, "--config.optimizer.learning_rate=1e-2")
    first, *_, last = metrics.read(tmp_path / "out/run")
    assert abs(first["eval/text_distillation/loss"]) < 1e-6 < last["eval/text_distillation/loss"]
    before, after = (stored_models.find(tmp_path / x) for x in ("dense", "out/model"))
    assert after.sentence == before.sentence
    own = stored_models.find(tmp_path / "out/run")
    assert own.sentence.steps == before.sentence.steps and own.sentence.pooling == ("cls",)
    for name in ("sentence/0/kernel", "sentence/0/bias"):
        for trained in (after, own):
            np.testing.assert_array_equal(trained.leaves[name], before.leaves[name])


@pytest.mark.parametrize(
    "changes, keys",
    [
        ({}, {"pooling": "mean", "loss": "squared"}),
        ({"steps": (None,), "pooling": ("cls",)}, {"pooling": "first", "loss": "cosine"}),
        (
            {"steps": (Dense(2, 3, "GELU", bias=False),)},
            {
                "pooling": "mean", "loss": "squared",
                "dense": 3, "bias": False, "activation": "GELU",
            },
        ),
        ({"steps": (Dense(2, 3, "Tanh", residual=True), None)}, None),
        ({"steps": (Dense(2, 3, "Tanh"), Dense(3, 3, "Tanh"))}, None),
        ({"steps": (None, Dense(2, 3, "Tanh"))}, None),
        ({"include_prompt": False}, None),
        ({"pooling": ("max",)}, None),
    ],
)  # fmt: skip
def test_the_keys_that_distil_a_model_into_itself_follow_from_its_modules(changes, keys):
    source = SimpleNamespace(folder="x", sentence=SentenceModules(**changes))
    if keys is not None:
        assert sentences.through_modules(source) == keys
        assert sentences.frozen_modules(source) == (("sentence/.*=0",) if "dense" in keys else ())
        return
    with pytest.raises(ConfigError, match=r"--from=x has the modules pooling .*; vectors can be"):
        sentences.through_modules(source)


def test_a_model_without_modules_is_no_sentence_encoder():
    with pytest.raises(ConfigError, match="has no sentence modules, so it is no sentence encoder"):
        sentences.through_modules(SimpleNamespace(folder="x", sentence=None))


def test_an_output_folder_with_other_files_is_refused(call, arguments, folder, tmp_path):
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(ConfigError, match="is the folder of --from; name another folder"):
        call(adapt.main, *arguments, f"--output={folder}/../{folder.name}")
    shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(ConfigError, match=r"contains other files, but no adaptation \(adaptation"):
        call(adapt.main, *arguments, f"--output={tmp_path}/copy")
    for model in (folder, tmp_path / "copy"):
        assert sorted(path.name for path in model.iterdir()) == before


def test_an_output_folder_may_have_only_a_lock_or_an_adaptation(tmp_path):
    """An interrupted command leaves the lock; an adaptation has further files."""
    source = SimpleNamespace(folder=tmp_path / "source")
    stages._check_output(tmp_path / "new", source)
    (tmp_path / LOCK).touch()
    stages._check_output(tmp_path, source)
    (tmp_path / "model").mkdir()
    with pytest.raises(ConfigError, match="contains other files"):
        stages._check_output(tmp_path, source)
    (tmp_path / FILE).touch()
    stages._check_output(tmp_path, source)


def test_other_options_start_over_until_the_first_checkpoint(tmp_path, monkeypatch):
    """The training run after the first checkpoint belongs to the options that started it."""
    folders, source = Folders(tmp_path), SimpleNamespace(folder="source")
    request, other = {"languages": ["sw"], "pieces": 40}, {"languages": ["sw"], "pieces": 50}
    fresh = {"source": "source", "request": request}
    assert stages._read_progress(folders, request, source) == fresh
    stored = fresh | {"pieces": [], "before": {}}
    folders.progress.write_text(json.dumps(stored))
    monkeypatch.setattr(stages.reading, "steps", lambda workdir: [])
    assert stages._read_progress(folders, request, source) == stored
    assert stages._read_progress(folders, other, source) == fresh | {"request": other}
    monkeypatch.setattr(stages.reading, "steps", {folders.run: [2]}.get)
    assert stages._read_progress(folders, request, source) == stored
    with pytest.raises(ConfigError, match=r"other options \(pieces: 40, now 50\); name a new"):
        stages._read_progress(folders, other, source)


@pytest.mark.slow
def test_held_out_lines_are_measured_and_not_trained_on(arguments, corpus, tmp_path, monkeypatch):
    """The measures read text that is in no row."""
    seen = {}

    def stop(request, config, samples, files):
        seen.update(samples)
        raise ConfigError("stop")

    monkeypatch.setattr(stages, "_test_text", stop)
    assert adapt.main([*arguments, f"--output={tmp_path}/out"]) == 2
    for name in ("sw", "en", "de"):
        train, held_out = (getattr(seen[f"text.{name}"], side)[0] for side in ("train", "held_out"))
        lines = set((corpus / f"mono/{name}.txt").read_text("utf-8").split("\n")) - {""}
        assert set(train) | set(held_out) <= lines
        assert seen[f"text.{name}"].is_whole
        if name == "de":  # in no pair, so only repeated lines are dropped
            assert set(train) | set(held_out) == lines
        assert len(held_out) > 10
        assert not set(line_hashes(train).tolist()) & set(line_hashes(held_out).tolist())
    pairs = seen["pairs.en-sw"]
    assert not set(pairs.train[0]) & set(pairs.held_out[0])


def test_rows_are_at_most_as_long_as_the_positions_of_the_model(tiny):
    """Two rows of a position table belong to no token."""
    tiny.data.length, tiny.model.positions = 512, 514
    config = parse(tiny)
    for positions, length in ((514, 512), (513, 511), (8194, 512)):
        source = SimpleNamespace(model=dataclasses.replace(config.model, positions=positions))
        assert stages._with_length_of(source, config).data.length == length


def test_ranking_trains_the_vectors_that_the_sentence_modules_pool(tiny):
    """Dense modules belong to the measured vectors too. Values that were chosen are kept."""
    config = parse(tiny)
    evaluation = dataclasses.replace(config.evaluation.retrieval, layer=1)
    evaluation = dataclasses.replace(config.evaluation, retrieval=evaluation)
    chosen = dataclasses.replace(config, evaluation=evaluation)
    plain, weights = SimpleNamespace(sentence=None), {"sentence/1/kernel": np.eye(2)}
    leaves = {name: Leaf((2, 2), lambda value=value: value) for name, value in weights.items()}

    def source_of(*pooling):
        modules = SentenceModules(pooling=pooling)
        return SimpleNamespace(sentence=modules, model=config.model, leaves=leaves | {"norm": None})

    assert stages._with_vectors_of_modules(plain, config) == config
    own = ("objectives.retrieval.pooling",)
    for given, pooling, explicit, expected in (
        (config, "mean", (), (2, "mean", 2)),
        (chosen, "cls", (), (2, "first", 1)),
        (config, "cls", own, (2, "text", 2)),
        (config, "weightedmean", (), (2, "text", 2)),
    ):
        changed = stages._with_vectors_of_modules(source_of(pooling), given, explicit)
        ranking = changed.objectives.retrieval
        assert (ranking.layer, ranking.pooling, changed.evaluation.retrieval.layer) == expected
    source = source_of("mean")
    trained = stages._with_modules(Pretrained({"norm": 1}, config.model, None), source)
    assert trained.sentence == source.sentence and trained.params["norm"] == 1
    assert trained.params["sentence"]["1"]["kernel"].tolist() == [[1, 0], [0, 1]]


REQUEST = AdaptRequest(("sw", "yo"), ("en",), 0.3, None, None)


def test_the_measures_read_pairs_whose_sentences_occur_once(tiny):
    held_out = {
        "text.sw": (["jambo"],),
        "text.yo": ([],),
        "text.en": (["a", "b"],),
        "text.de": (["c"],),  # trained on, but neither new nor replayed
        "pairs.en-sw": (["a", "b", "b", "c", "d", "e"], ["x", "y", "z", "x", "w", "v"]),
        "pairs.de-sw": (["a", "a", "b"], ["x", "y", "z"]),
    }
    samples = {name: TextSample(sides, sides, True) for name, sides in held_out.items()}
    config = parse(tiny)
    text = stages._test_text(config, REQUEST, samples, Files({}, {}, {}, {}, {}))
    assert text.lines == {"sw": ["jambo"], "en": ["a", "b"]}
    assert text.pairs == {"en-sw": (["d", "e"], ["w", "v"])}  # de-sw has one pair
    test_sets = {"en-yo": (["a", "a"], ["x", "y"]), "en-sw": (["a"], ["x"])}
    text = stages._test_text(config, REQUEST, samples, Files(test_sets, {}, {}, {}, {}))
    assert text.pairs == {"en-yo": test_sets["en-yo"]}


@pytest.mark.parametrize("counts, name", [((0, 0), "source"), ((0, 40), "out/extended")])
def test_training_starts_from_the_extended_model_if_a_language_has_new_pieces(
    tmp_path, monkeypatch, counts, name
):
    choices = [
        Choice(language, 2.5, 2.0, 0.0, 0.0, count, "as requested")
        for language, count in zip(REQUEST.languages, counts, strict=True)
    ]
    monkeypatch.setattr(stages.stored_models, "find", lambda folder, flag: folder)
    progress = {"pieces": [choice._asdict() for choice in choices]}
    folders = Folders(tmp_path / "out")
    result = stages._with_pieces(REQUEST, tmp_path / "source", {}, folders, progress)
    assert result == (tmp_path / name, choices)


@pytest.mark.parametrize(
    "steps, explicit, expected",
    [
        (None, (), (100, 20, 10, 30)),
        (300, ("train.steps",), (300, 60, 30, 90)),
        (300, ("train.eval_every", "data.sampled"), (300, 500, 30, 90)),
        (None, ("train.steps", "optimizer.warmup_steps"), (1000, 500, 100, 300)),
        (None, ("optimizer.warmup_steps",), (100, 20, 100, 30)),
    ],
)
def test_options_of_the_user_are_kept_in_the_plan(
    tiny, store, steps, explicit, expected, monkeypatch
):
    monkeypatch.setattr(stages.plan, "choose_steps", lambda *_: 100)
    tiny.train.steps, tiny.train.eval_every = 1000, 500
    tiny.optimizer.warmup_steps = 100
    tiny.phases = {"more": {"start_step": 300, "objectives": {"tlm": {"batch_size": 32}}}}
    tiny.data.sampled = "de,sw"
    request = REQUEST._replace(languages=("sw",), steps=steps)
    config = stages._planned(parse(tiny), store, request, explicit)
    train, phase = config.train, config.phases["more"]
    warmup_steps = config.optimizer.warmup_steps
    assert (train.steps, train.eval_every, warmup_steps, phase["start_step"]) == expected
    names = [name.partition("=")[0] for name in config.data.sampled]
    assert names == (["de", "sw"] if "data.sampled" in explicit else ["sw", "en"])
