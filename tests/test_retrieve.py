"""`xlj.retrieve`: accuracy as JSON, XTREME's file formats, and error messages."""

import json
import random

import numpy as np
import pytest

from xlj import phrasebook, retrieve
from xlj.config import ConfigError
from xlj.evaluation import bitext
from xlj.inference import pretrained
from xlj.retrieval import changed_sentences, parallel_sets, search
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
    sides = source - next(means), target - next(means)
    expected = search.accuracy(search.nearest(*sides))
    others = bitext.score(bitext.search(*sides), texts).as_json()
    arguments = [f"--source={files[0]}", f"--target={files[1]}", "--layer=2"]
    assert run(*arguments, "--centred")[0] == [
        {"layer": 2, **expected._asdict(), **others, "sentences": 60}
    ]
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
    for direction in ("source_to_target", "target_to_source", "xsim_source_to_target"):
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


@pytest.fixture(scope="module")
def flores(tmp_path_factory):
    """A set of three languages, named as in FLORES."""
    folder = tmp_path_factory.mktemp("flores") / "dev"
    folder.mkdir()
    for code, language in (("deu_Latn", "de"), ("eng_Latn", "en"), ("fra_Latn", "fr")):
        pairs = [phrasebook.pair(phrasebook.draw(11, k), "en", language) for k in range(30)]
        lines = [(p.source if language == "en" else p.target).text for p in pairs]
        (folder / f"{code}.dev").write_text("".join(f"{x} {k}.\n" for k, x in enumerate(lines)))
    return folder


def test_a_set_is_scored_as_a_table_json_and_a_heat_map(checkpoint, call, flores, tmp_path):
    flags = [f"--checkpoint={checkpoint}", f"--set={flores}", "--layer=2", "--languages=all"]
    files = tmp_path / "scores.json", tmp_path / "map.svg"
    printed = call(retrieve.main, *flags, f"--json={files[0]}", f"--plot={files[1]}",
                   "--changed=numbers").out  # fmt: skip
    texts = parallel_sets.read(flores)
    changed = changed_sentences.of_sources(["numbers"], texts["eng_Latn"])
    embedder = Embedder(pretrained.load(checkpoint), [2], None)
    vectors = {language: embedder.embed(sentences)[0] for language, sentences in texts.items()}
    hard = changed, embedder.embed([each.text for each in changed])[0]
    expected = bitext.score_set(vectors, texts, "eng_Latn", True, hard)
    assert expected.as_table() in printed and "3 languages, 30 sentences" in printed
    assert max(map(len, printed.splitlines())) <= 80
    stored = json.loads(files[0].read_text())
    assert stored == {"set": str(flores), "layer": 2, **json.loads(json.dumps(expected.as_json()))}
    assert len(stored["pairs"]) == 6 and files[1].read_text().startswith("<?xml")
    alone = call(retrieve.main, *flags, "--pivot=deu_Latn", "--centred").out
    assert "into deu_Latn" in alone and "all pairs" not in alone


def test_all_languages_of_a_template_are_scored(run, tatoeba):
    names = [
        f"--source={tatoeba}/{{language}}-en.{{language}}",
        f"--target={tatoeba}/aligned.{{language}}",
    ]
    every, _ = run("--languages=all", *names)
    assert every == run("--languages=de,fr", *names)[0]
    one = [name.replace("{language}", "de") for name in names]
    (line,) = run(*one, "--similarity=margin")[0]
    # F1 and xsim do not depend on --similarity.
    fields = [name for name in line if name.startswith(("f1", "xsim"))]
    assert len(fields) == 4 and all(line[name] == every[0][name] for name in fields)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "name two files with --source and --target, or a folder with --set"),
        (["--source=a", "--target=b", "--pivot=en"], "--pivot is a flag of --set"),
        (["--source=a", "--target=b", "--json=x.json"], "--json is a flag of --set"),
        (["--set=x", "--source=a"], "--source cannot be combined with --set"),
        (["--set=x", "--columns=2"], "--columns cannot be combined with --set"),
        (["--set=x", "--layers=all"], "--layers cannot be combined with --set"),
        (["--set=x", "--similarity=margin"], "xsim uses margins; remove --similarity"),
        (["--set=x", "--centred", "--changed=numbers"], "--centred cannot be combined with --ch"),
        (["--set=x", "--json=x.txt"], "--json=x.txt: the file name must end in .json"),
        (["--set=x"], "x is not a folder"),
        (["--set={flores}", "--pivot=en"], "--pivot=en is not a language of the set: deu_Latn"),
        (
            ["--set={flores}", "--languages=deu_Latn,fra_Latn", "--changed=numbers"],
            "has no English",
        ),
        (["--set={flores}", "--languages=deu_Latn,deu_Latn"], "a language is empty or repeated"),
        (["--source={language}.txt", "--target=b", "--languages=all"], "no such file of any lang"),
    ],
)
def test_errors_of_sets_are_reported_before_the_model_is_loaded(
    call, flores, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    filled = [argument.replace("{flores}", str(flores)) for argument in arguments]
    with pytest.raises(ConfigError, match=message):
        call(retrieve.main, "--checkpoint=none", *filled)
