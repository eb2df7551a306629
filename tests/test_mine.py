"""`xlj.mine`: mined pairs, thresholds from gold pairs, and error messages."""

import json

import pytest

from xlj import mine, phrasebook
from xlj.config import ConfigError
from xlj.io import compressed, files


@pytest.fixture
def run(checkpoint, call):
    """Runs the command in this process; returns its JSON line."""

    def run(*arguments):
        return json.loads(call(mine.main, f"--checkpoint={checkpoint}", *arguments).out)

    return run


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A source and a target text with 20 true pairs, as files with and without ids.

    The target sentence of a true pair is the source sentence and one more word. The source has 20
    other sentences and repeats its first sentence; the target has 15 others. The file `gold` has
    the true pairs.
    """
    folder = tmp_path_factory.mktemp("texts")
    drawn = {phrasebook.pair(phrasebook.draw(9, k), "en", "de").source.text for k in range(90)}
    lines = sorted(drawn)[:55]
    source, target = lines[:40] + lines[:1], [f"{x} So." for x in lines[:20]] + lines[40:]
    target.reverse()
    for name, side in (("a", source), ("b", target)):
        (folder / f"{name}.txt").write_text("".join(f"{x}\n" for x in side), encoding="utf-8")
        rows = "".join(f"{name}-{k}\t{x}\n" for k, x in enumerate(side))
        (folder / f"{name}.ids").write_text(rows, encoding="utf-8")
    gold = [f"a-{k}\tb-{len(target) - 1 - k}\n" for k in range(20)]
    (folder / "gold").write_text("".join(gold))
    return folder, source, target


def test_centred_changes_margins_and_needs_several_distinct_sentences(run, texts, tmp_path):
    folder, *_ = texts
    sides = [f"--source={folder / 'a.ids'}", f"--target={folder / 'b.ids'}"]
    sides += [f"--gold={folder / 'gold'}"]
    plain, centred = run(*sides), run(*sides, "--centred")
    assert centred["threshold"] != plain["threshold"] and centred["recall"] > 0.5
    (tmp_path / "one").write_text("a-0\tGood morning!\na-1\tGood morning!\n")
    with pytest.raises(
        ConfigError, match="one has only one distinct sentence; --centred needs several"
    ):
        run(f"--source={tmp_path / 'one'}", sides[1], "--centred", "--threshold=1", "--output=x")


def test_a_threshold_from_gold_gives_the_same_pairs_in_another_run(run, texts, tmp_path):
    folder, source, target = texts
    sides = [f"--source={folder / 'a.ids'}", f"--target={folder / 'b.ids'}"]
    output = tmp_path / "pairs.tsv"
    result = run(*sides, f"--gold={folder / 'gold'}", f"--output={output}")
    pairs, gold = (path.read_text().splitlines() for path in (output, folder / "gold"))
    correct = len(set(pairs) & set(gold))
    assert result["gold"] == 20 and result["pairs"] == len(pairs) > 10
    assert result["precision"] == correct / len(pairs) > 0.5 and result["recall"] == correct / 20
    assert result["f1"] == pytest.approx(2 * correct / (len(pairs) + 20))

    plain = [f"--source={folder / 'a.txt'}", f"--target={folder / 'b.txt'}"]
    again = run(*plain, f"--threshold={result['threshold']}", f"--output={output}", "--scores")
    assert again == {key: result[key] for key in ("layer", "threshold", "pairs")}
    rows = [line.split("\t") for line in output.read_text().splitlines()]
    for (one, other, _), pair in zip(rows, pairs, strict=True):
        i, j = (int(name[2:]) for name in pair.split("\t"))
        assert (one, other) == (source[i], target[j])
    margins = [float(row[2]) for row in rows]
    assert margins == sorted(margins, reverse=True) and margins[-1] >= result["threshold"] - 1e-6
    everything = run(*plain, "--threshold=0", f"--output={output}")
    assert result["pairs"] < everything["pairs"] <= len(target)


def test_blank_lines_between_documents_change_nothing(run, texts, tmp_path):
    """Also with --shard, which computes vectors line by line."""
    folder, *_ = texts
    outputs = []
    for name in ("plain", "documents"):
        sides = []
        for side in ("a", "b"):
            lines = (folder / f"{side}.txt").read_text("utf-8").splitlines()
            lines[5:5] = ["", " "] if name == "documents" else []
            file = tmp_path / f"{name}.{side}"
            file.write_text("\n".join(lines) + "\n", "utf-8")
            sides.append(file)
        flags = [f"--source={sides[0]}", f"--target={sides[1]}", "--threshold=0"]
        whole = run(*flags, f"--output={tmp_path / name}.tsv")
        assert run(*flags, f"--output={tmp_path / name}", "--shard=1/1") == whole
        outputs += [tmp_path / f"{name}.tsv", tmp_path / name / "pairs.tsv"]
    assert len({output.read_text("utf-8") for output in outputs}) == 1


def test_copies_are_counted_and_left_out_on_request(checkpoint, call, texts, tmp_path):
    folder, source, target = texts
    (tmp_path / "b").write_text("\n".join([*target, source[30], source[33].upper()]))
    flags = [f"--checkpoint={checkpoint}", f"--source={folder / 'a.txt'}", "--threshold=0"]
    flags += [f"--target={tmp_path / 'b'}", f"--output={tmp_path / 'pairs'}"]
    printed = call(mine.main, *flags)
    pairs = [line.split("\t") for line in (tmp_path / "pairs").read_text().splitlines()]
    copies = [pair for pair in pairs if pair[0].casefold() == pair[1].casefold()]
    assert [source[30]] * 2 in copies
    assert f"no translations: {len(copies)} (--drop_copies leaves them out)" in printed.err
    printed = call(mine.main, *flags, "--drop_copies")
    others = [line.split("\t") for line in (tmp_path / "pairs").read_text().splitlines()]
    assert others == [pair for pair in pairs if pair not in copies]
    assert f"no translations: {len(copies)} (left out)" in printed.err
    assert json.loads(printed.out)["pairs"] == len(others)


def test_columns_select_the_sentences_with_or_without_ids(run, texts, tmp_path):
    folder, source, target = texts
    for name, side in (("a", source), ("b", target)):
        rows = [f"{k}\ten\t{line}\n" for k, line in enumerate(side)]  # as in Tatoeba's files
        (tmp_path / name).write_text("".join(rows), "utf-8")
    sides = [f"--source={tmp_path / 'a'}", f"--target={tmp_path / 'b'}", "--threshold=0"]
    plain = [f"--source={folder / 'a.txt'}", f"--target={folder / 'b.txt'}", "--threshold=0"]
    outputs = []
    for flags in (plain, [*sides, "--columns=3"], sides, [*sides, "--columns=1,3"]):
        whole = run(*flags, f"--output={tmp_path / 'pairs'}")
        outputs.append((tmp_path / "pairs").read_text("utf-8"))
        if flags is sides:
            assert run(*flags, f"--output={tmp_path / 'parts'}", "--shard=1/1") == whole
            assert (tmp_path / "parts" / "pairs.tsv").read_text("utf-8") == outputs[-1]
    assert outputs[0] == outputs[1] and outputs[2] == outputs[3]
    ids = [tuple(map(int, line.split("\t"))) for line in outputs[2].splitlines()]
    assert "".join(f"{source[i]}\t{target[j]}\n" for i, j in ids) == outputs[0]


def test_the_ending_of_the_output_selects_its_compression(run, texts, tmp_path):
    folder, *_ = texts
    sides = [f"--source={folder / 'a.txt'}", f"--target={folder / 'b.txt'}", "--threshold=0"]
    for ending in ("", *compressed.ENDINGS):
        run(*sides, f"--output={tmp_path / 'pairs.tsv'}{ending}")
    plain = (tmp_path / "pairs.tsv").read_bytes()
    for ending in compressed.ENDINGS:
        file = tmp_path / f"pairs.tsv{ending}"
        assert b"".join(files.pieces(file)) == plain and len(file.read_bytes()) < len(plain)


def test_gold_pairs_that_are_not_mined_give_no_threshold(run, texts, tmp_path):
    folder, _, target = texts
    gold = tmp_path / "gold"
    gold.write_text(f"a-39\tb-{len(target) - 1}\n")
    result = run(f"--source={folder / 'a.ids'}", f"--target={folder / 'b.ids'}", f"--gold={gold}")
    assert result["threshold"] is None and result["pairs"] == 0 and result["f1"] == 0
    gold.write_text("")
    with pytest.raises(ConfigError, match=r"--gold=.*gold has no pairs; its lines must be `id TAB"):
        run(f"--source={folder / 'a.ids'}", f"--target={folder / 'b.ids'}", f"--gold={gold}")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "set the minimum margin of a pair with --threshold=T"),
        (["--threshold=1"], "nothing to do: name a file for the pairs with --output=FILE"),
        (["--threshold=1", "--output=/none/x"], "--output=/none/x: the folder"),
        (["--gold=gold"], "--gold has ids, but a.txt has none"),
        (["--gold=gold", "--scores"], "--scores writes a column of --output; set --output"),
        (
            ["--gold=gold", "--source=a.ids", "--target=a.ids"],
            "gold:1: b-34 is not the id of a target",
        ),
        (["--threshold=1", "--output=x", "--source=odd.ids"], "odd.ids:1: a column is blank"),
        (["--threshold=nan", "--output=x"], "--threshold=nan is not a number"),
        (["--threshold=much"], "argument --threshold: invalid float value"),
    ],
)
def test_errors_say_what_to_do(run, texts, monkeypatch, arguments, message):
    monkeypatch.chdir(texts[0])
    (texts[0] / "odd.ids").write_text("a-1\t\na-2\tThe cat sleeps.\n")
    with pytest.raises(ConfigError) as error:
        run("--source=a.txt", "--target=b.txt", *arguments)
    assert message in str(error.value)
