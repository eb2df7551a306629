"""`xlj.score`: cosines and margins of sentence pairs, filtered pairs, and error messages."""

import json

import numpy as np
import pytest

from xlj import phrasebook, score
from xlj.api.loading import load
from xlj.config import ConfigError
from xlj.evaluation import sts
from xlj.io import file_ranges
from xlj.retrieval import pair_scores


def lines_of(count, seed=3):
    drawn = [phrasebook.pair(phrasebook.draw(9, seed * 100 + n), "en", "de") for n in range(count)]
    return [f"{pair.source.text}\t{pair.target.text}" for pair in drawn]


@pytest.fixture
def text(tmp_path):
    """Thirty pairs: two are the same, one has an empty side, one has a further column."""
    lines = lines_of(30)
    lines[7], lines[11], lines[13] = lines[2], "a cat\t", lines[13] + "\tmore"
    (tmp_path / "pairs.tsv").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return lines


@pytest.fixture
def run(checkpoint, call, tmp_path):
    def run(*flags, output="out"):
        arguments = [f"--checkpoint={checkpoint}", f"--output={tmp_path / output}", "--layer=1"]
        printed = call(score.main, *arguments, *flags)
        return (tmp_path / output).read_text("utf-8").splitlines(), printed.err

    return run


def numpy_scores(checkpoint, lines, by):
    """Computes cosines or margins in NumPy, from their definitions."""
    model = load(checkpoint)
    sides = [list(side) for side in zip(*(line.split("\t")[:2] for line in lines), strict=True)]
    one, other = (model.embed(side, layer=1).astype(np.float64) for side in sides)
    one, other = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (one, other))
    is_whole = np.array([bool(a and b) for a, b in zip(*sides, strict=True)])
    cosines = (one * other).sum(1)

    def density(queries, keys, texts):
        places = {text: k for k, text in reversed(list(enumerate(texts))) if is_whole[k]}
        table = np.sort(queries @ keys[sorted(places.values())].T, axis=1)[:, ::-1]
        return table[:, :4].mean(1)

    if by == "margin":
        cosines /= (density(one, other, sides[1]) + density(other, one, sides[0])) / 2
    return np.where(is_whole, cosines, np.nan)


@pytest.mark.parametrize("by", ["cosine", "margin"])
def test_scores_equal_numpy(run, text, tmp_path, checkpoint, by, monkeypatch):
    monkeypatch.setattr(file_ranges, "RANGE_BYTES", 500)  # several parts
    monkeypatch.setattr(pair_scores, "CHUNK", 7)
    monkeypatch.setattr(pair_scores, "_CHUNK", 5)
    scores, printed = run(f"--input={tmp_path}/pairs.tsv", f"--by={by}")
    np.testing.assert_allclose(
        list(map(float, scores)), numpy_scores(checkpoint, text, by), atol=2e-5
    )
    assert "30 scores" in printed and "because a side is empty: 1" in printed
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    sides = [(line.split("\t")[0], line.split("\t")[1]) for line in text]
    in_python = load(checkpoint).score(sides, by, layer=1)
    np.testing.assert_allclose(in_python, numpy_scores(checkpoint, text, by), atol=2e-5)


def test_two_files_give_the_same_scores_as_one_file_of_pairs(run, text, tmp_path):
    expected, _ = run(f"--input={tmp_path}/pairs.tsv")
    for side, name in enumerate(("en", "de")):
        lines = [line.split("\t")[side] for line in text]
        (tmp_path / f"a.{name}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    scores, _ = run(f"--source={tmp_path}/a.en", f"--target={tmp_path}/a.de", output="two")
    assert scores == expected
    (tmp_path / "a.de").write_text("one\n")
    with pytest.raises(ConfigError, match="have different numbers of lines"):
        run(f"--source={tmp_path}/a.en", f"--target={tmp_path}/a.de")


def test_the_best_pairs_are_written_in_their_input_order(run, text, tmp_path):
    scores = np.array(list(map(float, run(f"--input={tmp_path}/pairs.tsv")[0])))
    pairs, printed = run(f"--input={tmp_path}/pairs.tsv", "--keep=0.5", output="kept")
    order = np.argsort(-np.nan_to_num(scores, nan=-9), kind="stable")[:15]
    assert pairs == [text[k] for k in sorted(order)] and "15 of 30 pairs" in printed
    threshold = float(np.sort(scores[~np.isnan(scores)])[10])
    flags = [f"--input={tmp_path}/pairs.tsv", f"--threshold={threshold - 1e-5}", "--scores"]
    pairs, _ = run(*flags, output="above")
    above = [k for k in range(30) if scores[k] >= threshold - 1e-5]
    assert pairs == [f"{text[k]}\t{scores[k]:.6f}" for k in above]


def test_pairs_in_other_columns_and_formats_have_the_same_scores(run, tmp_path, monkeypatch):
    monkeypatch.setattr(file_ranges, "RANGE_BYTES", 300)  # several parts, with one header
    pairs = [line.split("\t") for line in lines_of(12)]
    expected, _ = run(f"--input={write_rows(tmp_path / 'a.tsv', pairs)}")
    rows = [["score", "en", "de"], *([f"1.0{n}", *pair] for n, pair in enumerate(pairs))]
    named = write_rows(tmp_path / "named.tsv", rows)
    records = [
        json.dumps({"translation": dict(zip(("en", "de"), pair, strict=True))}) for pair in pairs
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(records))
    units = "".join(
        f'<tu><tuv xml:lang="de"><seg>{b}</seg></tuv>'
        f'<tuv xml:lang="en-US"><seg>{a}</seg></tuv></tu>'
        for a, b in pairs
    )
    (tmp_path / "a.tmx").write_text(f"<tmx><header/><body>{units}</body></tmx>")
    for side in range(2):  # as in Leipzig's files
        column = [[f"{n}", pair[side]] for n, pair in enumerate(pairs, 1)]
        write_rows(tmp_path / f"ids.{side}", column)
    for flags in (
        [f"--input={named}", "--columns=en,de"],
        [f"--input={named}", "--columns=2,3", "--keep=1"],
        [f"--input={tmp_path}/a.jsonl", "--columns=translation.en,translation.de"],
        [f"--input={tmp_path}/a.tmx", "--columns=eng,deu"],
        [f"--input={tmp_path}/ids.0|{tmp_path}/ids.1"],
        [f"--source={tmp_path}/ids.0", f"--target={tmp_path}/ids.1"],
    ):
        scores, _ = run(*flags)
        if "--keep=1" in flags:  # the header was scored as a pair too
            assert scores == named.read_text().splitlines()
        else:
            assert scores == expected, flags
    with pytest.raises(ConfigError, match="1 numbers .*2 text .*3 text .*--columns=2,3$"):
        run(f"--input={named}")


def write_rows(file, rows):
    file.write_text("".join("\t".join(row) + "\n" for row in rows), "utf-8")
    return file


def test_pairs_with_the_same_sides_are_counted_and_left_out_on_request(run, tmp_path):
    pairs = [line.split("\t") for line in lines_of(8)]
    pairs[2], pairs[5] = [pairs[2][0]] * 2, ["A Cat", " a  cat"]
    file = write_rows(tmp_path / "a.tsv", [*pairs, ["only", ""]])
    scores, printed = run(f"--input={file}")
    assert len(scores) == 9 and "the same, so no translations: 2 (--drop_copies" in printed
    best, _ = run(f"--input={file}", "--keep=0.25")
    assert best == ["\t".join(pairs[2]), "\t".join(pairs[5])]
    rest, printed = run(f"--input={file}", "--drop_copies", "--scores")
    assert "no translations: 2 (left out)" in printed
    kept = [k for k in range(8) if k not in (2, 5)]
    assert rest == ["\t".join([*pairs[k], scores[k]]) for k in kept]
    best, _ = run(f"--input={file}", "--drop_copies", "--keep=0.25")
    assert len(best) == 2 and set(best) < {"\t".join(pairs[k]) for k in kept}


@pytest.mark.parametrize("by", ["cosine", "margin"])
def test_shards_equal_a_single_run_and_damaged_parts_are_written_again(
    run, text, tmp_path, checkpoint, call, by, monkeypatch
):
    monkeypatch.setattr(file_ranges, "RANGE_BYTES", 600)
    expected, _ = run(f"--input={tmp_path}/pairs.tsv", f"--by={by}", "--keep=0.5")
    flags = [f"--checkpoint={checkpoint}", "--layer=1", f"--by={by}", "--keep=0.5"]
    flags += [f"--input={tmp_path}/pairs.tsv", f"--output={tmp_path}/shared"]
    assert (
        "parts of other shards that are still missing"
        in call(score.main, *flags, "--shard=1/2").err
    )
    call(score.main, *flags, "--shard=2/2")
    assert (tmp_path / "shared" / "kept.tsv").read_text("utf-8").splitlines() == expected
    files = json.loads((tmp_path / "shared" / "manifest.json").read_text())["files"]
    assert sum(each["rows"] for each in files) == 30 and len(files) > 2
    damaged_part = tmp_path / "shared" / files[1]["file"]
    content = damaged_part.read_bytes()
    damaged_part.write_bytes(content[:-1])
    call(score.main, *flags, "--shard=2/2")
    assert damaged_part.read_bytes() == content


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--keep=1.5"], "argument --keep: 1.5 is not a share above 0 and up to 1"),
        (["--scores"], "--scores adds a column to selected pairs: set --keep, --threshold or"),
        (["--threshold=nan"], "--threshold=nan is not a number"),
        (["--source=x"], "--source and --target must be set together"),
        (["--source=x", "--target=y"], "name pairs with --input, or with --source and --target"),
        (["--by=likelihood"], "configs/aligner.py"),
        (
            ["--by=likelihood", "--pooling=text"],
            "pooling=text has no effect with by=likelihood",
        ),
        (["--layer=9"], "layer 9 does not exist"),
        (["--input=/none/a.tsv"], "a file with sentence pairs; there is no folder /none"),
        (["--input=BAD"], "bad.tsv:2: 1 columns; expected source and target"),
    ],
)
def test_errors_leave_no_files(run, text, tmp_path, flags, message):
    (tmp_path / "bad.tsv").write_text("a\tb\nc\n")
    flags = [flag.replace("BAD", f"{tmp_path}/bad.tsv") for flag in flags]
    with pytest.raises(ConfigError) as error:
        run(f"--input={tmp_path}/pairs.tsv", *flags)
    assert message in str(error.value) and not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".xlj*"))


def test_arguments_in_python_are_checked(checkpoint):
    model = load(checkpoint)
    assert model.score(("a cat", "eine Katze")).shape == (1,) and model.score([]).shape == (0,)
    with pytest.raises(
        ConfigError, match="by is 'margins'; it must be one of cosine, .*did you mean"
    ):
        model.score([("a", "b")], "margins")
    with pytest.raises(ConfigError, match="pair 0 is 'ab'"):
        model.score(["ab"])


def test_correlations_with_gold_scores_of_each_file(checkpoint, call, text, tmp_path):
    """`text` has a line with an empty side, which a file with gold scores must not have."""
    sides = [line.split("\t")[:2] for line in text]
    pairs = [pair for pair in sides if all(pair)]
    gold = [round(5 * (k * 7 % 11) / 11, 2) for k in range(len(pairs))]
    for language, first in (("de", 0), ("fr", 5)):
        rows = zip(pairs[first:], gold[first:], strict=True)
        lines = [f"{score}\timages\t{a}\t{b}" for (a, b), score in rows]
        content = "\n".join(["score\tgenre\tsentence1\tsentence2", *lines]) + "\n"
        (tmp_path / f"sts-{language}.tsv").write_text(content, "utf-8")
    flags = [f"--checkpoint={checkpoint}", "--layer=1", "--gold", "--by=margin"]
    printed = call(score.main, *flags, f"--input={tmp_path}/sts-{{language}}.tsv")
    *lines, average = map(json.loads, printed.out.splitlines())
    assert [line["language"] for line in lines] == ["de", "fr"] and average["file"] == "average"
    assert lines[1]["pairs"] == len(pairs) - 5 and lines[1]["genres"] == {"images": len(pairs) - 5}
    expected = sts.correlate(
        load(checkpoint).score(pairs[5:], "margin", layer=1).tolist(), gold[5:]
    )
    assert (lines[1]["spearman"], lines[1]["pearson"]) == pytest.approx(expected)
    assert average["pearson"] == pytest.approx((lines[0]["pearson"] + lines[1]["pearson"]) / 2)
    assert "not a whole file of the STS benchmark" in printed.err
    one = call(score.main, *flags, f"--input={tmp_path}/sts-fr.tsv").out.splitlines()
    assert json.loads(*one) == {k: v for k, v in lines[1].items() if k != "language"}
    with pytest.raises(ConfigError, match="there is no such file of any language"):
        call(score.main, *flags, f"--input={tmp_path}/none-{{language}}.tsv")
    for other in ("--keep=0.5", "--output=x", "--malformed=skip", "--shard=1/2"):
        with pytest.raises(ConfigError, match="--gold reads --input and prints correlations"):
            call(score.main, *flags, f"--input={tmp_path}/sts-fr.tsv", other)
