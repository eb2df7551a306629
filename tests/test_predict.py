"""`xlj.predict` gives new text the same labels as fine-tuning, and as transformers."""

import dataclasses
import functools
import json
import os
import random

import numpy as np
import pytest

from xlj import convert, phrasebook, predict
from xlj.api.encoder import load
from xlj.config import ConfigError, finetuning
from xlj.finetuning import task_data, task_runs
from xlj.inference import predictor
from xlj.io import file_ranges

pytestmark = pytest.mark.usefixtures("one_device")

KINDS = ("classification", "tagging", "question_answering", "regression", "multiple_choice")


def make_task(folder, kind):
    """Writes data that a model can learn in a few steps; returns a config with the files."""
    rng = random.Random(5)
    lines = [line for line in phrasebook.text_lines("en") if line and len(line) < 50][:300]
    for split, size in (("train", 96), ("dev", 16), ("test", 24)):
        file = folder / f"{split}-en.{'jsonl' if kind == 'multiple_choice' else 'tsv'}"
        text = ""
        for line in rng.sample(lines, size):
            side, other = rng.choice((("a a a", "z z z"), ("z z z", "a a a")))
            words = line.split()
            if kind == "classification":
                text += f"{side} {line}\t{rng.choice(lines)}\t{side[0]}\n"
            elif kind == "regression":
                text += f"{side} {line}\t{rng.choice(lines)}\t{4.5 if side[0] == 'a' else 0.5}\n"
            elif kind == "tagging":
                text += "".join(f"{w}\t{'B-E' if 'e' in w else 'O'}\n" for w in words) + "\n"
            else:
                right = rng.randrange(2)
                choices = (side, other) if right == 0 else (other, side)
                keys = {"choice1": choices[0], "choice2": choices[1], "label": right}
                text += json.dumps({"premise": f"{side} {line}"} | keys) + "\n"
        file.write_text(text, "utf-8")
    config = finetuning.default()
    for split in ("train", "dev", "test"):
        config.task[split] = f"{folder}/{split}-{{language}}.{file.name.rpartition('.')[2]}"
    if kind == "question_answering":
        config.task.train = "phrasebook:questions/{language}#train"
        config.task.dev = config.task.test = "phrasebook:questions/{language}#dev"
        config.task.stride, config.task.question_length, config.task.answer_length = 16, 32, 8
    return config


@pytest.fixture(scope="module")
def runs(checkpoint, tmp_path_factory):
    """A function of the kind of task: returns (config, run), and trains each kind only once."""

    @functools.cache
    def run(kind):
        folder = tmp_path_factory.mktemp(kind)
        config = make_task(folder, kind)
        config.init_from, config.data.cache = str(checkpoint), str(folder / "rows")
        config.task.kind, config.task.length = kind, 64
        config.task.batch_size, config.train.steps, config.train.eval_every = 16, "5ep", "100%"
        if kind == "question_answering":
            config.train.steps, config.task.length = "0.02ep", 96
        if kind == "multiple_choice":
            config.task.length = 128  # truncates nothing, like transformers
        config.optimizer.learning_rate = 1e-2
        (done,) = task_runs.run(finetuning.parse(config), folder / "run").runs
        return finetuning.parse(config), done

    return run


@pytest.fixture(scope="module")
def folders(runs, tmp_path_factory):
    """A function of the kind of task: returns the folder of its exported run."""

    @functools.cache
    def export(kind):
        folder = tmp_path_factory.mktemp("exported") / kind
        flags = [f"--checkpoint={runs(kind)[1].folder}", f"--output={folder}"]
        assert convert.main(["export", *flags]) == 0
        return folder

    return export


def examples_of(config):
    """Returns the examples of the test set."""
    return task_data._read(config.task)["test"]["en"]


def input_line(kind, example):
    if kind == "tagging":
        return " ".join(example.words)
    if kind == "question_answering":
        return json.dumps(
            {"id": example.identity, "question": example.question, "context": example.context}
        )
    if kind == "multiple_choice":
        return "\t".join([example.premise, *example.choices])
    return "\t".join(example.texts)


@pytest.mark.parametrize(
    "kind", [*KINDS[:2], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[2:])]
)
def test_predictions_equal_those_of_fine_tuning(kind, runs, folders, call, tmp_path):
    """Tests the run and its exported folder, whose metrics must be above chance.

    An evaluation without training (`train.steps=0`) from either must give the same metrics.
    """
    config, trained = runs(kind)
    examples = examples_of(config)
    text = tmp_path / ("text.jsonl" if kind == "question_answering" else "text.txt")
    text.write_text("".join(f"{input_line(kind, e)}\n" for e in examples), "utf-8")
    ending = "json" if kind == "question_answering" else "tsv"
    written = (trained.folder / "predictions" / f"test-en.{ending}").read_text("utf-8")
    for checkpoint in (trained.folder, folders(kind)):
        output = tmp_path / f"{checkpoint.name}.jsonl"
        flags = [f"--checkpoint={checkpoint}", f"--input={text}", f"--output={output}"]
        call(predict.main, *flags, "--output_format=jsonl")
        predictions = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
        assert len(predictions) == len(examples)
        if kind == "question_answering":
            assert {one["id"]: one["answer"] for one in predictions} == json.loads(written)
            for one, example in zip(predictions, examples, strict=True):
                assert example.context[one["start"] : one["end"]] == one["answer"]
        elif kind == "tagging":
            assert [one["tags"] for one in predictions] == [
                block.split("\n") for block in written.strip().split("\n\n")
            ]
            assert all(0.3 < p <= 1 for one in predictions for p in one["probabilities"])
        elif kind == "regression":
            scores = [one["score"] for one in predictions]
            np.testing.assert_allclose(scores, [float(x) for x in written.split()], atol=1e-5)
        else:
            key = "label" if kind == "classification" else "choice"
            assert [str(one[key]) for one in predictions] == written.split()
        train = dataclasses.replace(config.train, steps=0)
        evaluation_config = dataclasses.replace(config, init_from=str(checkpoint), train=train)
        (evaluated,) = task_runs.run(evaluation_config, tmp_path / f"{checkpoint.name}-again").runs
        for scores, expected in ((evaluated.dev, trained.dev), (evaluated.test, trained.test)):
            assert scores.keys() == expected.keys()
            for name, by_language in expected.items():
                # Scores are percentages.
                assert scores[name] == pytest.approx(by_language, abs=0.01), name
        evaluated_text = evaluated.folder / "predictions" / f"test-en.{ending}"
        assert kind == "regression" or evaluated_text.read_text("utf-8") == written
    assert kind == "question_answering" or next(iter(trained.test.values()))["en"] > 60


def test_the_export_of_an_imported_folder_has_the_same_files(folders, tmp_path):
    """The separator of pairs and the length of rows are part of these files."""
    folder = folders("classification")
    assert convert.main(["import", f"--source={folder}", f"--output={tmp_path}/made"]) == 0
    assert (
        convert.main(["export", f"--checkpoint={tmp_path}/made", f"--output={tmp_path}/out"]) == 0
    )
    for name in ("tokenizer.json", "task.json", "config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes(), name
    assert json.loads((folder / "task.json").read_text())["length"] == 64


@pytest.mark.parity
def test_tags_and_classes_equal_those_of_transformers(runs, folders):
    """Compares classes with the pipeline, and tags with the model.

    The tag of a word is that of its first piece that is more than the word mark ("▁").
    """
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    config, _ = runs("classification")
    pairs = [example.texts for example in examples_of(config)]
    classify = transformers.pipeline("text-classification", str(folders("classification")))
    hf_labels = classify([{"text": a, "text_pair": b} for a, b in pairs])
    xlj_labels = load(folders("classification")).predict(pairs)
    assert [one["label"] for one in xlj_labels] == [one["label"] for one in hf_labels]
    for xlj_label, hf_label in zip(xlj_labels, hf_labels, strict=True):
        assert xlj_label["probability"] == pytest.approx(hf_label["score"], abs=1e-5)

    config, _ = runs("tagging")
    sentences = [list(example.words) for example in examples_of(config)][:20]
    folder = folders("tagging")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder).eval()
    equal_sentences = 0
    for words, xlj_label in zip(sentences, load(folder).predict(sentences), strict=True):
        batch = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            best = model(**batch).logits[0].argmax(-1).tolist()
        tags = {}
        for number, word, piece in zip(best, batch.word_ids(), batch.tokens(), strict=True):
            if word is not None and piece != "\u2581":
                tags.setdefault(word, model.config.id2label[number])
        equal_sentences += [tags[k] for k in range(len(words))] == xlj_label["tags"]
    assert equal_sentences == 20


@pytest.mark.slow
@pytest.mark.parity
def test_scores_and_choices_equal_those_of_transformers(runs, folders):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    config, _ = runs("regression")
    pairs = [example.texts for example in examples_of(config)]
    folder = folders("regression")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        batch = tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt")
        hf_scores = model(**batch).logits[:, 0].tolist()
    xlj_scores = [prediction["score"] for prediction in load(folder).predict(pairs)]
    np.testing.assert_allclose(xlj_scores, hf_scores, atol=1e-4)
    config, _ = runs("multiple_choice")
    folder = folders("multiple_choice")
    model = transformers.AutoModelForMultipleChoice.from_pretrained(folder).eval()
    for example in examples_of(config)[:5]:
        batch = tokenizer(
            [example.premise] * 2, list(example.choices), padding=True, return_tensors="pt"
        )
        with torch.no_grad():
            hf_probabilities = (
                model(**{k: v[None] for k, v in batch.items()}).logits[0].softmax(0).tolist()
            )
        (prediction,) = load(folder).predict([(example.premise, *example.choices)])
        np.testing.assert_allclose(prediction["probabilities"], hf_probabilities, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parity
def test_answers_equal_those_of_transformers(runs, folders):
    """Uses questions that fit into one window. The best span is computed as in the model card.

    In xlj an answer neither begins nor ends at a piece that is only the word mark ("▁").
    """
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    config, _ = runs("question_answering")
    folder = folders("question_answering")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    examples = [
        example
        for example in examples_of(config)
        if len(tokenizer(example.question, example.context)["input_ids"]) <= config.task.length
        and len(tokenizer(example.question)["input_ids"]) <= config.task.question_length
    ][:20]
    predictions = load(folder).predict(
        [{"question": e.question, "context": e.context} for e in examples]
    )
    hf_answers = []
    for example in examples:
        batch = tokenizer(
            example.question, example.context, return_tensors="pt", return_offsets_mapping=True
        )
        characters = batch.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            outputs = model(**batch)
        sides = zip(batch.sequence_ids(), batch.tokens(), strict=True)
        inside = torch.tensor([side == 1 and piece != "\u2581" for side, piece in sides])
        spans = (inside[:, None] & inside).triu().tril(config.task.answer_length - 1)
        sums = outputs.start_logits[0][:, None] + outputs.end_logits[0]
        first, last = divmod(sums.masked_fill(~spans, -torch.inf).argmax().item(), len(inside))
        hf_answers.append(example.context[characters[first][0] : characters[last][1]].strip())
    assert [one["answer"].strip() for one in predictions] == hf_answers and len(hf_answers) == 20


def test_output_lines_match_input_lines(runs, call, tmp_path, monkeypatch):
    monkeypatch.setattr(predictor, "_CHUNK", 3)
    _, done = runs("tagging")
    checkpoint = f"--checkpoint={done.folder}"
    lines = ["The cat sleeps .", "", "I read", "\xe9", "a b c d", "Good morning"]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    call(predict.main, checkpoint, f"--input={tmp_path}/text", f"--output={tmp_path}/tsv")
    tags = (tmp_path / "tsv").read_text().split("\n")[:-1]
    assert [len(line.split()) for line in tags] == [4, 0, 2, 1, 4, 2]
    columns = "# text = x\nThe\tX\ncat\tX\n\n\nsleeps\tX\n"
    (tmp_path / "in.conll").write_text(columns)
    call(predict.main, checkpoint, f"--input={tmp_path}/in.conll", f"--output={tmp_path}/conll")
    rows = (tmp_path / "conll").read_text().split("\n")
    assert [line.split("\t")[0] for line in rows] == [
        "# text = x",
        "The",
        "cat",
        "",
        "",
        "sleeps",
        "",
    ]
    assert all(line.split("\t")[1] in ("O", "B-E") for line in (rows[1], rows[2], rows[5]))
    monkeypatch.setattr("sys.stdin", None)
    saved_stdin = os.dup(0)
    try:
        with (tmp_path / "text").open("rb") as file:
            os.dup2(file.fileno(), 0)
        call(predict.main, checkpoint, f"--output={tmp_path}/from_stdin")
    finally:
        os.dup2(saved_stdin, 0)
        os.close(saved_stdin)
    assert (tmp_path / "from_stdin").read_bytes() == (tmp_path / "tsv").read_bytes()


def test_shards_equal_a_single_run_and_damaged_parts_are_written_again(
    runs, call, tmp_path, monkeypatch
):
    monkeypatch.setattr(file_ranges, "RANGE_BYTES", 300)
    _, done = runs("classification")
    lines = [f"{side} {n}\tthe other {n}" for n in range(40) for side in ("a a a", "z z z")]
    for name, part in (("one.txt", lines[:50]), ("two.txt", lines[50:])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in part))
    (tmp_path / "all").write_text("".join(f"{line}\n" for line in lines))
    flags = [f"--checkpoint={done.folder}"]
    call(predict.main, *flags, f"--input={tmp_path}/all", f"--output={tmp_path}/whole")
    folder = tmp_path / "out"
    shared = [*flags, f"--input={tmp_path}/*.txt", f"--output={folder}"]
    assert (
        "parts of other shards that are still missing"
        in call(predict.main, *shared, "--shard=2/2").err
    )
    call(predict.main, *shared, "--shard=1/2")
    files = json.loads((folder / "manifest.json").read_text())["files"]
    assert sum(each["lines"] for each in files) == 80 and len(files) > 4
    parts = [folder / each["file"] for each in files]
    labels = [line.split("\t")[0] for part in parts for line in part.read_text().splitlines()]
    assert labels == [line.split("\t")[0] for line in (tmp_path / "whole").read_text().splitlines()]
    content = parts[3].read_bytes()
    parts[3].write_bytes(content[:-1])
    call(predict.main, *shared, "--shard=2/2")
    assert parts[3].read_bytes() == content
    with pytest.raises(ConfigError, match="parts of another job; .*: output_format;"):
        call(predict.main, *shared, "--shard=1/2", "--output_format=jsonl")


@pytest.mark.parametrize(
    "kind, text, flags, message",
    [
        ("classification", "a\tb\tc", [], "text:1: 3 columns; expected one text, or two"),
        ("classification", "a", ["--input_format=jsonl"], "text:1: not valid JSON"),
        (
            "classification",
            '{"x": 1}',
            ["--input_format=jsonl"],
            "text:1: the object needs a text under the key text",
        ),
        ("classification", "a", ["--output_format=conll"], "classification does not label words"),
        (
            "classification",
            '{"text": "a"}',
            [],
            "this is JSON; to read one object per line, use --input_format=jsonl",
        ),
        ("tagging", "Ada\tB-PER", [], "text:1: the line has a tab"),
        ("classification", "a\tb\n\nc", [], "text:3: the line has another number of texts "),
        ("tagging", "a", ["--input_format=conll", "--output_format=tsv"], "one line per sentence"),
        (
            "tagging",
            '{"tokens": []}',
            ["--input_format=jsonl"],
            "text:1: the sentence has no words",
        ),
        ("tagging", "a", ["--shard=1/1"], "--shard needs a folder that all shards share"),
        ("classification", "a", ["--shard=1/2", "--output_format=conll"], "does not label words"),
    ],
)
def test_errors_come_before_any_work(runs, call, tmp_path, kind, text, flags, message):
    (tmp_path / "text").write_text(f"{text}\n")
    output = [] if "--shard=1/1" in flags else [f"--output={tmp_path}/out"]
    arguments = [
        f"--checkpoint={runs(kind)[1].folder}",
        f"--input={tmp_path}/text",
        *output,
        *flags,
    ]
    with pytest.raises(ConfigError) as error:
        call(predict.main, *arguments)
    assert message in str(error.value) and not (tmp_path / "out").exists()


def test_a_model_without_a_task_is_refused(checkpoint, call, tmp_path):
    (tmp_path / "text").write_text("a\n")
    with pytest.raises(ConfigError, match="the model has no task head; expected a run of xlj fin"):
        call(predict.main, f"--checkpoint={checkpoint}", f"--input={tmp_path}/text")


def test_predict_in_python(runs):
    model = load(runs("classification")[1].folder)
    one = model.predict("a a a the cat")
    two = model.predict([("a a a", "b"), {"text": "a a a the cat"}], show_progress_bar=False)
    assert one[0]["label"] == two[1]["label"] and len(two) == 2
    assert sum(one[0]["probabilities"].values()) == pytest.approx(1)
    assert model.predict([]) == []
    for wrong in ([3], [("a", 3)], [("a", "b", "c")], [{"x": "a"}], [""]):
        with pytest.raises(ConfigError, match="text 0"):
            model.predict(wrong)


def test_predictions_convert_to_a_pandas_table(runs):
    pytest.importorskip("pandas")
    predictions = load(runs("classification")[1].folder).predict(["a a a the cat"])
    assert list(predictions.to_pandas()) == ["label", "probability", "probabilities"]
