"""`xlj.align`: its input formats, links, scores and error messages."""

import functools
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from xlj import align, phrasebook
from xlj.config import ConfigError
from xlj.config.choices import LINK_FORMATS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def gold(tmp_path_factory):
    """A TSV file of 10 phrasebook pairs with their gold links, and the pairs."""
    pairs = [phrasebook.pair(phrasebook.draw(7, k), "en", "de") for k in range(10)]
    file = tmp_path_factory.mktemp("gold") / "gold.tsv.gz"
    lines = ["src\ttgt\tgold"]
    for pair in pairs:
        sides = [" ".join(word.form for word in side.words) for side in (pair.source, pair.target)]
        links = " ".join(f"{i}-{j}" for i, j in sorted(pair.alignment))
        lines.append("\t".join([*sides, links]))
    file.write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))
    return file, pairs


@pytest.fixture
def run(checkpoint, call):
    """Runs the command in this process; returns what it prints."""
    return functools.partial(call, align.main, f"--checkpoint={checkpoint}")


def test_each_pair_gets_one_line_of_sorted_links(run, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("one two three\teins zwei drei\n\n\tonly\nonly\t\nfour\tvier\n")
    output = tmp_path / "links.txt"
    run(f"--input={pairs}", f"--output={output}")
    lines = output.read_text().split("\n")
    assert len(lines) == 6 and lines[1:4] == ["", "", ""] and lines[4:] == ["0-0", ""]
    links = [tuple(map(int, link.split("-"))) for link in lines[0].split()]
    assert links and links == sorted(set(links)) and max(map(max, links)) < 3
    assert run(f"--input={pairs}", "--output=-").out == output.read_text()
    reader, writer = os.pipe()  # a pipe can be read only once
    os.write(writer, pairs.read_bytes())
    os.close(writer)
    assert run(f"--input=/dev/fd/{reader}", "--output=-").out == output.read_text()
    os.close(reader)


@pytest.mark.parametrize("shard", [False, True])
def test_skipped_lines_become_empty_lines_of_links(run, tmp_path, shard):
    pairs, output = tmp_path / "pairs.tsv", tmp_path / "links"
    lines = [b"one\teins", b"\xff\tx", b"no tab", b"", b"x\0\ty", b"q" * 1_100_000, b"two\tzwei"]
    pairs.write_bytes(b"\n".join(lines) + b"\n")
    flags = [f"--input={pairs}", f"--output={output}", *(["--shard=1/1"] if shard else [])]
    with pytest.raises(
        ConfigError, match=r"pairs\.tsv:2: the line is not UTF-8; .*--malformed=skip"
    ):
        run(*flags)
    stderr = run(*flags, "--malformed=skip").err
    written = next(output.glob("*.links")) if shard else output
    assert written.read_text() == "0-0\n" + "\n" * 5 + "0-0\n"
    for number, reason in ((2, "invalid UTF-8"), (3, "wrong number of columns"), (5, "NUL")):
        assert f"skipped: {reason}: 1 (first: {pairs}:{number})" in stderr
    assert f"skipped: line too long: 1 (first: {pairs}:6)" in stderr
    with pytest.raises(ConfigError, match="--malformed=skip cannot be used with --gold"):
        run(f"--input={pairs}", "--gold", "--malformed=skip")


def test_scores_are_computed_from_the_written_links(run, gold, tmp_path):
    file, pairs = gold
    output, links_file = tmp_path / "links.txt", tmp_path / "gold.txt"
    printed = json.loads(run(f"--input={file}", "--gold", f"--output={output}", "--layer=1").out)
    assert printed["pairs"] == 10 and printed["layer"] == 1
    predicted = [{tuple(map(int, x.split("-"))) for x in y.split()} for y in output.open()]
    hits = sum(len(links & pair.alignment) for links, pair in zip(predicted, pairs, strict=True))
    total, sure = sum(map(len, predicted)), sum(len(pair.alignment) for pair in pairs)
    assert printed["aer"] == pytest.approx(1 - 2 * hits / (total + sure), abs=1e-6)
    assert printed["precision"] == pytest.approx(hits / total, abs=1e-6)
    assert printed["recall"] == pytest.approx(hits / sure, abs=1e-6)

    lines = (" ".join(f"{i}-{j}" for i, j in pair.alignment) for pair in pairs)
    links_file.write_text("\n".join(lines) + "\n")
    again = run(f"--input={file}", f"--gold={links_file}", "--layer=1").out
    assert json.loads(again) == printed
    links_file.write_text(
        "".join(f"{k} {i + 1} {j + 1}\n" for k, p in enumerate(pairs) for i, j in p.alignment)
    )
    again = run(f"--input={file}", f"--gold={links_file}", "--layer=1").out
    assert json.loads(again) == printed


def test_layers_all_prints_a_table_and_draws_a_plot(run, gold, tmp_path):
    plot = tmp_path / "aer.svg"
    files = f"--plot={plot}", f"--output={tmp_path / 'aer.jsonl'}"
    printed = run(f"--input={gold[0]}", "--gold", "--layers=all", *files).out
    rows = [line.split() for line in printed.splitlines()]
    assert rows[0] == ["layer", "AER", "P", "R", "F1"] and [row[0] for row in rows[1:]] == [*"0123"]
    assert printed.count("lowest AER") == 1
    one = json.loads(run(f"--input={gold[0]}", "--gold", "--layer=2").out)
    np.testing.assert_allclose(float(rows[3][1]), 100 * one["aer"], atol=0.006)
    assert plot.read_text().startswith("<?xml")
    written = [json.loads(line) for line in (tmp_path / "aer.jsonl").read_text().splitlines()]
    assert [line["layer"] for line in written] == [0, 1, 2, 3]
    assert written[2]["aer"] == pytest.approx(one["aer"], abs=1e-6)


@pytest.mark.slow
def test_one_run_scores_all_combinations_of_methods_and_encodings(run, gold, tmp_path):
    files = f"--plot={tmp_path / 'aer.svg'}", f"--output={tmp_path / 'aer.jsonl'}"
    flags = "--gold", "--layers=all", "--method=all", "--encode=all", "--prior=0.5"
    printed = run(f"--input={gold[0]}", *flags, *files).out
    rows = [line.split() for line in printed.splitlines()[1:]]
    assert len(rows) == 2 * 5 * 4 and printed.count("lowest AER") == 1
    lines = [json.loads(line) for line in (tmp_path / "aer.jsonl").read_text().splitlines()]
    settings = [(line["encode"], line["method"], str(line["layer"])) for line in lines]
    assert [tuple(row[:3]) for row in rows] == settings and len(set(settings)) == len(settings)
    best = min(lines, key=lambda line: line["aer"])
    assert "lowest" in rows[lines.index(best)]
    chosen = "--encode=apart", "--method=argmax", "--layer=2", "--prior=0.5"
    one = json.loads(run(f"--input={gold[0]}", "--gold", *chosen).out)
    assert one["prior"] == 0.5
    (same,) = [line for line in lines if ("apart", "argmax", 2) == tuple(line.values())[:3]]
    assert same["aer"] == pytest.approx(one["aer"], abs=1e-6)
    without = json.loads(run(f"--input={gold[0]}", "--gold", *chosen[:3]).out)
    assert without["aer"] != one["aer"]


def test_confidences_match_their_links_and_a_threshold_filters_by_them(run, gold, tmp_path):
    output = tmp_path / "links.txt"
    arguments = f"--input={gold[0]}", "--layer=1", "--method=argmax"
    run(*arguments, f"--output={output}", "--scores")
    rows = [line.split("\t") for line in output.read_text().splitlines()]
    links = [row[0].split() for row in rows]
    numbers = [[float(x) for x in row[1].split()] for row in rows]
    run(*arguments, f"--output={output}", "--scores", "--output_format=naacl")
    lines = [line.split() for line in output.read_text().splitlines()]
    assert [float(line[4]) for line in lines] == [x for row in numbers for x in row]
    assert [f"{int(line[1]) - 1}-{int(line[2]) - 1}" for line in lines] == sum(links, [])
    assert list(map(len, links)) == list(map(len, numbers)) and sum(map(len, links)) > 20
    confidences = [number for line in numbers for number in line]
    assert 0 < min(confidences) < max(confidences) <= 1
    median = sorted(confidences)[len(confidences) // 2]
    run(*arguments, f"--output={output}", f"--threshold={median + 0.00005}")
    confident_links = [
        [link for link, number in zip(*both, strict=True) if number > median]
        for both in zip(links, numbers, strict=True)
    ]
    assert [line.split() for line in output.read_text().splitlines()] == confident_links


def test_links_are_written_in_several_formats(run, gold, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("one two three\teins zwei drei\n\nfour\tvier\n")
    outputs = {}
    for name in LINK_FORMATS:
        outputs[name] = run(f"--input={pairs}", "--output=-", f"--output_format={name}").out
    links = [
        [tuple(map(int, link.split("-"))) for link in line.split()]
        for line in outputs["pharaoh"].splitlines()
    ]
    assert links[1] == [] and len(links) == 3 and links[0]
    assert outputs["pharaoh_1"] == "".join(
        " ".join(f"{i + 1}-{j + 1}" for i, j in line) + "\n" for line in links
    )
    assert outputs["naacl"] == "".join(
        f"{k} {i + 1} {j + 1} S\n" for k, line in enumerate(links, 1) for i, j in line
    )
    words = "one two three".split(), "eins zwei drei".split()
    assert outputs["words"].splitlines()[0] == " ".join(
        f"{words[0][i]}<sep>{words[1][j]}" for i, j in links[0]
    )
    pieces = [line.split() for line in outputs["pieces"].splitlines()]
    assert len(pieces) == 3 and len(pieces[0]) >= len(links[0])
    long = tmp_path / "long.tsv"  # a word of several pieces, linked to itself
    long.write_text("zqxjk\tzqxjk\n")
    printed = run(f"--input={long}", "--output=-", "--output_format=pieces", "--encode=apart").out
    assert len(printed.split()) > 1
    for name, first in (("pharaoh_1", 1), ("naacl", None)):  # --gold reads these formats
        file, more = tmp_path / name, [] if first is None else [f"--gold_from={first}"]
        run(f"--input={gold[0]}", f"--output={file}", f"--output_format={name}")
        scores = json.loads(run(f"--input={gold[0]}", f"--gold={file}", *more).out)
        assert scores["aer"] == 0


def test_pairs_are_read_in_several_formats(run, tmp_path):
    sides = [["the cat sleeps", "yes"], ["die Katze schläft", "ja"]]
    contents = {
        "a.tsv": "\n".join(map("\t".join, zip(*sides, strict=True))) + "\n",
        "a.txt": "\n".join(map(" ||| ".join, zip(*sides, strict=True))) + "\n",
        "scored.tsv": "".join(f"1.5\t{a}\t{b}\n" for a, b in zip(*sides, strict=True)),
        "tatoeba.tsv": "".join(f"7\t{a}\t8\t{b}\n" for a, b in zip(*sides, strict=True)),
        "ids.en": "".join(f"{n}\t{line}\n" for n, line in enumerate(sides[0])),
        "a.en": "\n".join(sides[0]) + "\n",
        "a.de": "\n".join(sides[1]) + "\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content, "utf-8")
    outputs = [
        run(f"--input={tmp_path / name}", "--output=-", *more).out
        for name, more in (
            ("a.tsv", []),
            ("a.txt", []),
            ("scored.tsv", ["--columns=2,3"]),
            ("tatoeba.tsv", ["--columns=2,4"]),
            (f"ids.en|{tmp_path / 'a.de'}", []),
            (f"a.en|{tmp_path / 'a.de'}", []),
        )
    ]
    assert len(set(outputs)) == 1 and outputs[0].count("\n") == 2
    with pytest.raises(ConfigError, match="--output=.*a.de would overwrite --input"):
        run(f"--input={tmp_path / 'a.en'}|{tmp_path / 'a.de'}", f"--output={tmp_path / 'a.de'}")
    run(f"--input={tmp_path / 'a.tsv'}", f"--output={tmp_path / 'links.gz'}")
    assert gzip.decompress((tmp_path / "links.gz").read_bytes()).decode() == outputs[0]


def test_a_no_break_space_does_not_separate_words(run, tmp_path):
    file = tmp_path / "a.tsv"
    file.write_text("it costs 10,000 euros\tcela coûte 10\u00a0000 euros\n", "utf-8")
    arguments = f"--input={file}", "--output=-", "--output_format=words"
    target = {pair.split("<sep>")[1] for pair in run(*arguments).out.rstrip("\n").split(" ")}
    assert target <= {"cela", "coûte", "10\u00a0000", "euros"}
    printed = run(*arguments, "--words=whitespace").out
    assert not any("\u00a0" in pair for pair in printed.split(" "))


def test_lowercase_gives_the_links_of_lower_case_text(run, tmp_path):
    files = [tmp_path / name for name in ("upper.tsv", "lower.tsv")]
    text = "The Woman Sees THE DOG\tDie Frau SIEHT DEN Hund\n"
    for file, content in zip(files, (text, text.lower()), strict=True):
        file.write_text(content)
    outputs = [
        run(f"--input={file}", "--output=-", "--method=argmax", *more).out
        for file, more in ((files[0], []), (files[0], ["--lowercase"]), (files[1], []))
    ]
    assert outputs[0] != outputs[1] == outputs[2]


def test_tags_are_projected_along_the_links(run, gold, tmp_path):
    file, pairs = gold
    tags = tmp_path / "tags.conll"
    words = [[word.form for word in pair.source.words] for pair in pairs]
    tags.write_text(
        "\n".join("".join(f"{word}\tT{k}\n" for k, word in enumerate(side)) for side in words)
    )
    links, output = tmp_path / "links.txt", tmp_path / "out.conll"
    arguments = f"--input={file}", "--layer=1"
    run(*arguments, f"--output={links}")
    printed = run(*arguments, f"--output={output}", f"--project={tags}").err
    assert "tagged " in printed and " had no link" in printed
    sentences = [part.splitlines() for part in output.read_text().removesuffix("\n").split("\n\n")]
    for lines, pair, line in zip(sentences, pairs, links.read_text().splitlines(), strict=True):
        linked = [tuple(map(int, link.split("-"))) for link in line.split()]
        assert [row.split("\t")[0] for row in lines] == [w.form for w in pair.target.words]
        for j, row in enumerate(lines):
            expected = {f"T{i}" for i, k in linked if k == j} or {"_"}
            assert row.split("\t")[1] in expected
    tags.write_text("other\tX\n")
    with pytest.raises(ConfigError, match=r"tags\.conll:1: the words are 'other', expected"):
        run(*arguments, f"--output={output}", f"--project={tags}")


def test_the_html_page_has_the_written_links_and_the_gold_links(run, gold, tmp_path):
    page, output = tmp_path / "page.html", tmp_path / "links.txt"
    run(f"--input={gold[0]}", "--gold", "--layer=1", f"--html={page}", f"--output={output}")
    data = page.read_text().partition('id="data">')[2].partition("</script>")[0]
    links = [" ".join(f"{i}-{j}" for i, j, _ in pair[2]) for pair in json.loads(data)]
    assert links == output.read_text().splitlines()
    assert [pair[3] for pair in json.loads(data)] == [
        [list(link) for link in sorted(pair.alignment)] for pair in gold[1]
    ]


def test_without_matplotlib_a_table_and_a_hint_are_printed(run, gold, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    printed = run(f"--input={gold[0]}", "--gold", "--layers=all", f"--plot={tmp_path / 'aer.png'}")
    assert "lowest AER" in printed.out and "pip install -e '.[plots]'" in printed.err


def test_long_pairs_are_reported(run, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("one\teins\n" + " ".join(["word"] * 60) + "\tWort\n")
    printed = run(f"--input={pairs}", f"--output={tmp_path / 'links.txt'}").err
    assert "1 of 2 pairs were too long for the model" in printed


def test_no_output_is_left_after_an_error(run, tmp_path, monkeypatch):
    from xlj.word_alignment import aligner

    monkeypatch.setattr(aligner, "MAX_PIECES", 20)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("one\teins\n" + "word " * 30 + "\tWort\n")
    with pytest.raises(ConfigError, match=r"pairs\.tsv:2: a sentence has"):
        run(f"--input={pairs}", f"--output={tmp_path / 'links.txt'}")
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.tsv"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "name a file for the links with --output=FILE, or score them with --gold"),
        (["--layers=all"], "--layers=all prints the scores of all layers: set"),
        (["--gold", "--layers=all", "--layer=1"], "--layers=all prints the scores of"),
        (["--gold", "--layers=all", "--html=x.html"], "--layers=all prints the scores of"),
        (["--gold", "--method=all"], "--method=all needs --layers=all"),
        (["--gold", "--encode=all"], "--encode=all needs --layers=all"),
        (["--output=x", "--gold_from=1"], "--gold_from needs --gold"),
        (
            ["--gold", "--output_format=words"],
            "--output_format=words is a format of links: set --output",
        ),
        (
            ["--gold", "--output=x", "--output_format=pieces"],
            "--gold and --html need links between words",
        ),
        (["--output=x", "--columns=1"], "--columns=1: expected the columns of source and target"),
        (["--output=x", "--shard=1/2", "--output_format=naacl"], "naacl numbers all pairs"),
        (["--gold", "--prior=-1"], "argument --prior: -1 is not a finite number of at least 0"),
        (["--gold", "--threshold=nan"], "argument --threshold: nan is not a finite number"),
        (["--gold", "--project=x"], "--project=x: name a file for the labels: --output=FILE"),
        (["--output=x", "--project=/none"], "/none: cannot read this file"),
        (["--gold", "--html=/none/x.html"], "--html=/none/x.html: the folder"),
        (["--html=x", "--scores"], "--scores writes a column beside the links: set --output"),
        (["--gold", "--layers=all", "--scores"], "--html, --project, --scores and --output=-"),
        (["--gold", "--layer=4"], "--layer=4: this model has layers 0 (embeddings) to 3"),
        (["--output=/none/links.txt"], "--output=/none/links.txt: the folder"),
        (
            ["--gold", "--layers=all", "--plot=/none/x.png"],
            "--plot=/none/x.png: the folder /none does not exist",
        ),
        (["--gold", "--plot=x.png"], "--plot=x.png needs --layers=all"),
        (["--gold=/none.txt"], "/none.txt: cannot read this file"),
        (["--gold", "--method=best"], "argument --method: invalid choice: 'best'"),
        (["--gold", "--layer=two"], "argument --layer: invalid int value: 'two'"),
        (["--gold", "--lay=2"], "unknown flags: --lay=2"),
    ],
)
def test_errors_say_what_to_do(run, gold, arguments, message):
    with pytest.raises(ConfigError) as error:
        run(f"--input={gold[0]}", *arguments)
    assert message in str(error.value)


def test_gold_for_another_number_of_pairs_is_refused(run, gold, tmp_path):
    file = tmp_path / "gold.txt"
    file.write_text("0-0\n")
    with pytest.raises(ConfigError, match="gold links for 1 sentence pairs, but .* has 10 pairs"):
        run(f"--input={gold[0]}", f"--gold={file}")


def test_command_line_errors_are_one_line():
    command = [sys.executable, "-m", "xlj.align", "--input=none.tsv"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr == "error: the following arguments are required: --checkpoint\n"
