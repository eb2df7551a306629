"""`xlj.retrieve`: accuracy as JSON, XTREME's file formats, and error messages."""

import json
import random

import numpy as np
import pytest

from xlj import phrasebook, retrieve
from xlj.config import ConfigError
from xlj.inference import pretrained
from xlj.retrieval import search
from xlj.retrieval.embedder import Embedder


@pytest.fixture
def run(checkpoint, call):
    """Runs the command in this process; returns its JSON lines and its other output."""

    def run(*arguments):
        printed = call(retrieve.main, f"--checkpoint={checkpoint}", *arguments)
        return [json.loads(line) for line in printed.out.splitlines()], printed.err

    return run


@pytest.fixture(scope="module")
def tatoeba(tmp_path_factory):
    """Files of two languages: sentences, "English" in the same order and sorted, XTREME's labels.

    An "English" sentence is the other sentence and one more word, so that an encoder with random
    weights finds most pairs.
    """
    folder = tmp_path_factory.mktemp("tatoeba")
    for number, language in enumerate(("de", "fr")):
        lines = {
            phrasebook.pair(phrasebook.draw(number, k), "en", language).target.text
            for k in range(40)
        }
        lines = sorted(lines)
        random.Random(5).shuffle(lines)
        english = [f"{line} So." for line in lines]
        order = sorted(range(len(lines)), key=english.__getitem__)
        for name, content in (
            (f"{language}-en.{language}", lines),
            (f"aligned.{language}", english),
            (f"{language}-en.en", [english[i] for i in order]),
            (f"test-{language}.tsv", order),
        ):
            text = "".join(f"{line}\n" for line in content)
            (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_every_layer_is_printed_and_drawn(run, tatoeba, tmp_path):
    plot = tmp_path / "layers.svg"
    results, _ = run(
        f"--source={tatoeba / 'de-en.de'}", f"--target={tatoeba / 'aligned.de'}",
        "--layers=all", f"--plot={plot}", "--similarity=margin",
    )  # fmt: skip
    assert [line["layer"] for line in results] == [0, 1, 2, 3]
    lines = len((tatoeba / "de-en.de").read_text().splitlines())
    assert all(line["sentences"] == lines for line in results)
    assert all(0.5 < line[direction] <= 1 for line in results for direction in list(line)[1:3])
    assert plot.read_text().startswith("<?xml")
    one, _ = run(
        f"--source={tatoeba / 'de-en.de'}", f"--target={tatoeba / 'aligned.de'}",
        "--layer=2", "--similarity=margin",
    )  # fmt: skip
    assert one == [results[2]]


def test_a_sorted_target_with_gold_has_the_accuracy_of_an_aligned_target(run, tatoeba, tmp_path):
    source = f"--source={tatoeba / 'de-en.de'}"
    aligned, stderr = run(source, f"--target={tatoeba / 'aligned.de'}")
    assert not stderr
    output = tmp_path / "predicted.tsv"
    results, stderr = run(
        source, f"--target={tatoeba / 'de-en.en'}", f"--gold={tatoeba / 'test-de.tsv'}",
        f"--output={output}",
    )  # fmt: skip
    assert results == aligned and not stderr
    predicted, gold = output.read_text().split(), (tatoeba / "test-de.tsv").read_text().split()
    accuracy = sum(a == b for a, b in zip(predicted, gold, strict=True)) / len(gold)
    assert accuracy == results[0]["target_to_source"] > 0.5
    wrong, stderr = run(source, f"--target={tatoeba / 'de-en.en'}")
    assert wrong[0]["target_to_source"] < 0.3 and "de-en.en is sorted, like the English" in stderr


def test_centred_subtracts_the_mean_vector_of_each_side(run, checkpoint, tmp_path):
    pairs = [phrasebook.pair(phrasebook.draw(3, k), "en", "de") for k in range(60)]
    texts = [p.source.text for p in pairs], [p.target.text for p in pairs]
    files = [tmp_path / name for name in ("en", "de")]
    for file, lines in zip(files, texts, strict=True):
        file.write_text("".join(f"{line}\n" for line in lines))
    source, target = (
        Embedder(pretrained.load(checkpoint), [2], "mean").embed(lines)[0] for lines in texts
    )
    means = (side.mean(0, dtype=np.float64).astype(np.float32) for side in (source, target))
    expected = search.accuracy(search.nearest(source - next(means), target - next(means)))
    arguments = [f"--source={files[0]}", f"--target={files[1]}", "--layer=2"]
    assert run(*arguments, "--centred")[0] == [{"layer": 2, **expected._asdict(), "sentences": 60}]
    assert run(*arguments)[0][0]["source_to_target"] != expected.source_to_target


def test_languages_are_averaged(run, tatoeba):
    names = [f"--{name}={tatoeba}/{file}" for name, file in (
        ("source", "{language}-en.{language}"), ("target", "{language}-en.en"),
        ("gold", "test-{language}.tsv"),
    )]  # fmt: skip
    *results, average = run("--languages=de,fr", *names)[0]
    assert [line["language"] for line in (*results, average)] == ["de", "fr", "average"]
    one = [name.replace("{language}", "fr") for name in names]
    assert results[1] == {"language": "fr", **run(*one)[0][0]}
    for direction in ("source_to_target", "target_to_source"):
        assert average[direction] == pytest.approx(
            (results[0][direction] + results[1][direction]) / 2
        )
    assert average["sentences"] == results[0]["sentences"] + results[1]["sentences"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--target=short.txt"], "has 3 sentences, but short.txt has 1; expected translations"),
        (["--target=blank.txt"], "blank.txt:2: the line is blank"),
        (["--target=none.txt"], "none.txt: cannot read this file"),
        (
            ["--gold=short.txt"],
            "short.txt:1: 'Guten Morgen!' is not the index of a source line; expected 0 to 2",
        ),
        (["--layers=all", "--layer=1"], "--layers=all only prints scores: remove --layer"),
        (["--layers=all", "--output=x"], "remove --layer and --output"),
        (["--layers=all", "--plot=/none/x.png"], "--plot=/none/x.png: the folder"),
        (["--plot=x.png"], "--plot=x.png needs --layers=all"),
        (["--output=/none/x"], "--output=/none/x: the folder"),
        (
            ["--layers=all", "--plot=x.txt"],
            "--plot=x.txt: the file name must end in .png or .svg or .pdf",
        ),
        (["--source=short.txt", "--target=short.txt"], "have one sentence each"),
        (
            ["--source={language}", "--languages=de,,fr"],
            "--languages=de,,fr: a language is empty or repeated",
        ),
        (
            ["--source={language}", "--languages=de,de"],
            "--languages=de,de: a language is empty or repeated",
        ),
        (["--languages=de"], "--source=a.txt: with --languages, the name needs {language}"),
        (
            ["--source={language}.txt"],
            "--source={language}.txt: name the languages with --languages=A,B",
        ),
        (["--layer=9"], "layer 9 does not exist"),
        (
            ["--source=short.txt", "--gold=gold", "--centred"],
            "short.txt has only one distinct sentence",
        ),
        (
            ["--source={language}", "--target=/dev/null", "--languages=de,fr"],
            "--target=/dev/null: --languages reads this input once for each language; name a file",
        ),
    ],
)
def test_errors_say_what_to_do(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("The cat sleeps.\nGood morning!\nI read a book.\n")
    (tmp_path / "short.txt").write_text("Guten Morgen!\n")
    (tmp_path / "gold").write_text("0\n0\n0\n")
    (tmp_path / "blank.txt").write_text("eins\n\ndrei\n")
    with pytest.raises(ConfigError) as error:
        run("--source=a.txt", "--target=a.txt", *arguments)
    assert message in str(error.value)
