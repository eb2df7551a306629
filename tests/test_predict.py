"""`xlj.predict` gives new text the same labels as fine-tuning, and as transformers."""

import dataclasses
import functools
import gzip
import json
import os
import random
import shutil

import numpy as np
import pytest

from xlj import convert, phrasebook, predict
from xlj.api.loading import load
from xlj.checkpoints import stored_models
from xlj.config import ConfigError, finetuning
from xlj.data.labelled import conll
from xlj.data.labelled.examples import Words
from xlj.finetuning import task_data, task_runs
from xlj.inference import predictor
from xlj.io import file_ranges
from xlj.tasks.tagging import Tagging

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


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.slow
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


MARK_ONLY = ["The", "\u732b", "sleeps", "."]  # the first piece of the second word is a mark


def of_others(folder, path):
    """Copies an exported folder as a model that xlj did not train."""
    shutil.copytree(folder, path)
    (path / "task.json").unlink()
    return path


@pytest.mark.slow
def test_the_piece_with_the_tag_depends_on_where_a_tagger_comes_from(folders, runs, tmp_path):
    """Others tag the first piece of a word (run_ner.py of transformers), even if it is a mark."""
    own, others = folders("tagging"), of_others(folders("tagging"), tmp_path / "others")
    assert json.loads((own / "task.json").read_text())["tagged_piece"] == "text"
    assert stored_models.find(runs("tagging")[1].folder).task.tagged_piece == "text"
    assert convert.main(["import", f"--source={others}", f"--output={tmp_path}/made"]) == 0
    flags = [f"--checkpoint={tmp_path}/made", f"--output={tmp_path}/out"]
    assert convert.main(["export", *flags]) == 0
    old = json.loads((own / "task.json").read_text())
    del old["tagged_piece"]
    shutil.copytree(own, tmp_path / "old")
    (tmp_path / "old" / "task.json").write_text(json.dumps(old))  # of a version without the key
    example, columns = Words(tuple(MARK_ONLY), None, ""), []
    for folder, rule in (
        (own, "text"),
        (others, "first"),
        (tmp_path / "made", "first"),
        (tmp_path / "out", "first"),
        (tmp_path / "old", ""),
    ):
        source = stored_models.find(folder)
        assert source.task.tagged_piece == rule
        task = dataclasses.replace(source.task, length=64)
        columns.append(Tagging().rows([example], source.vocabulary(), (), task).positions[1, 1])
    assert columns[1] == columns[2] == columns[3] == columns[0] - 1 == columns[4] - 1
    card = (tmp_path / "out" / "README.md").read_text()
    assert "prediction for its first piece.\n" in card and "piece not in" not in card
    assert "for its next piece" in (own / "README.md").read_text()
    config, _ = runs("tagging")
    train = dataclasses.replace(config.train, steps=0)
    for named, rule in (("", "first"), ("text", "text")):
        task = dataclasses.replace(config.task, tagged_piece=named)
        asked = dataclasses.replace(config, init_from=str(others), train=train, task=task)
        used = task_runs._with_tagged_piece(asked, stored_models.find(others)).task
        assert used.tagged_piece == rule


@pytest.mark.parity
def test_a_tagger_of_others_gives_the_tags_of_transformers(folders, tmp_path):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    folder = of_others(folders("tagging"), tmp_path / "others")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        batch = tokenizer(MARK_ONLY, is_split_into_words=True, return_tensors="pt")
        logits = model(**batch).logits[0]
    first = {}
    for place, word in enumerate(batch.word_ids()):
        first.setdefault(word, place)
    (label,) = load(folder).predict([MARK_ONLY])
    expected = logits.softmax(-1)[[first[k] for k in range(4)]].max(-1).values
    np.testing.assert_allclose(label["probabilities"], expected.numpy(), atol=1e-5)
    other = logits.softmax(-1)[first[1] + 1].max()
    assert abs(float(other) - label["probabilities"][1]) > 1e-3


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


CONLLU = """\
# sent_id = 1
#\tspan = '1'
1-2\tzum\t_\t_\t_\t_\t_\t_\t_\t_
1\tzu\t_\tADP\t_\t_\t_\t_\t_\t_
2\tdem\t_\tDET\t_\t_\t_\t_\t_\t_
2.1\tx\t_\tX\t_\t_\t_\t_\t_\t_

1\tParis\t_\tX\t_\t_\t_\t_\t_\t_
"""


@pytest.mark.parametrize(
    "text, words, lines",
    [
        (CONLLU, ["zu dem", "Paris"], ["# sent_id = 1", "# span = '1'", "zu", "dem", "", "Paris"]),
        (
            "# global.columns = ID FORM NE\n# id = 1\n1\ta\tO\n2\tb\tO\n",
            ["a b"],
            ["# id = 1", "a", "b"],
        ),
        (
            "-DOCSTART- -X- O\n\nb\u00a0c NN O\n1 CD O\n-DOCSTART- -X- O\nd X O\n\n\n",
            ["b\u00a0c 1", "d"],
            ["-DOCSTART- -X- O", "", "b\u00a0c", "1", "-DOCSTART- -X- O", "d", "", ""],
        ),
        ("token\ttag\nsw:Mei\tO\nsw:10 000\tO\n", ["Mei 10 000"], ["Mei", "10 000"]),
    ],
)
def test_tagged_conll_is_read_as_labelled_text(runs, call, tmp_path, text, words, lines):
    """The words are those that fine-tuning reads, and comments stay comments."""
    (tmp_path / "a.conllu").mkdir()
    source, output = tmp_path / "a.conllu" / "in.iob2.gz", tmp_path / "out.conll"
    source.write_bytes(gzip.compress(text.encode()))
    call(
        predict.main,
        f"--checkpoint={runs('tagging')[1].folder}",
        f"--input={source}",
        f"--output={output}",
    )
    tagged = conll.read(output, "", ())
    assert [" ".join(sentence.words) for sentence in tagged] == words
    assert {tag for sentence in tagged for tag in sentence.tags} <= {"O", "B-E"}
    assert [line.split("\t")[0] for line in output.read_text().split("\n")[:-1]] == lines


def test_text_beside_a_format_of_another_name_is_text(runs, call, tmp_path):
    """Only the end of the name of a file shows its format."""
    folder = tmp_path / "x.conllu"
    folder.mkdir()
    (folder / "notes.jsonl.txt").write_text("10\u00a0000 cats  sleep\n", "utf-8")
    flags = [f"--checkpoint={runs('tagging')[1].folder}", f"--output={tmp_path}/out"]
    call(predict.main, *flags, f"--input={folder}/notes.jsonl.txt", "--output_format=conll")
    assert [line.split("\t")[0] for line in (tmp_path / "out").read_text().split("\n")] == [
        "10\u00a0000", "cats", "sleep", "", "",
    ]  # fmt: skip
    (folder / "b.jsonl").write_text('{"tokens": ["a\\tb"]}\n')
    with pytest.raises(ConfigError, match="several formats: .*b.jsonl .jsonl., .*txt .text.; set"):
        call(predict.main, *flags, f"--input={folder}/*", "--shard=1/1")
    with pytest.raises(ConfigError, match=r"b.jsonl:1: .* contains a tab or a line feed"):
        call(predict.main, *flags, f"--input={folder}/b.jsonl", "--output_format=conll")


@pytest.mark.slow
def test_the_header_of_a_table_is_no_text(runs, call, tmp_path):
    (tmp_path / "text").write_text("sentence1\tsentence2\na a a\tb\n")
    flags = [f"--checkpoint={runs('classification')[1].folder}", f"--input={tmp_path}/text"]
    with pytest.raises(
        ConfigError, match="text:1: the line is the header of a table, not text; .*"
    ):
        call(predict.main, *flags, f"--output={tmp_path}/out")
    skipped = call(predict.main, *flags, f"--output={tmp_path}/out", "--malformed=skip").err
    assert f"skipped: header of a table: 1 (first: {tmp_path}/text:1)" in skipped
    assert [len(line) > 0 for line in (tmp_path / "out").read_text().split("\n")] == [0, 1, 0]


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
            "7\ta b\n8\tc\n",
            [],
            "text: expected columns of text, but its columns are 1 numbers (8), 2 text (c); keep",
        ),
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


def test_a_tagger_in_python_keeps_words_and_skips_blank_text(runs):
    predictions = load(runs("tagging")[1].folder).predict(
        ["", "10\u00a0000 cats", " \n", ["\u3000", "a b"], ["sw:Mei", "sw:lo"], {"words": ["x"]}]
    )
    words = [one and one["words"] for one in predictions]
    assert words == [None, ["10\u00a0000", "cats"], None, ["\u3000", "a b"], ["Mei", "lo"], ["x"]]


def test_predictions_convert_to_a_pandas_table(runs):
    pytest.importorskip("pandas")
    predictions = load(runs("classification")[1].folder).predict(["a a a the cat"])
    assert list(predictions.to_pandas()) == ["label", "probability", "probabilities"]
