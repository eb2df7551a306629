"""Building rows from text: any number of workers gives the same rows, and held-out lines are not
trained on. Rows are built in child processes, as in normal use.

Also samples of text consist of whole units; train and held-out lines are separated as in rows.
"""

import dataclasses
import gzip
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from made_rows import LINES, OBJECTIVES, examples, files, folders, in_this_process

from xlj import phrasebook
from xlj.config import Config, Data, parse
from xlj.data.rows import building, prepasses
from xlj.data.rows.preparing import prepare_rows
from xlj.data.rows.report import FILE, report
from xlj.data.rows.request import request_of
from xlj.data.rows.store import RowStore
from xlj.data.text import held_out
from xlj.data.text.cleaning import clean, line_hashes
from xlj.data.text.held_out import Rule
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.layout import BOS, PAD
from xlj.data.tokenizer.vocabulary import Vocabulary

REAL = Path(__file__).parents[3].parent / "shared" / "data"


def test_rows_contain_the_text(built, text):
    pairs = examples(built, "pairs.xx-yy", "train") + examples(built, "pairs.xx-yy", "held_out")
    expected = [line.replace("\u00a0", "") for line in (text / "xx-yy.tsv").read_text().split("\n")]
    dropped = built.task("pairs.xx-yy").text.dropped
    assert len(pairs) + dropped[held_out.REASON] == len(expected) - 1
    assert set(pairs) < set(expected)
    # Documents are cut into rows and lose their held-out lines, but no token is lost.
    task = built.task("text.xx")
    lines = [line for line in (text / "xx.txt").read_text().split("\n") if line]
    ids = Vocabulary.load(built.vocabulary_file).encode(lines).ids
    splits = {split: np.arange(task.split(split).rows) for split in ("train", "held_out")}
    rows = [built.read("text.xx", split, numbers)["tokens"] for split, numbers in splits.items()]
    actual = np.concatenate(rows)
    assert np.array_equal(
        np.bincount(ids, minlength=500)[4:], np.bincount(actual[actual != PAD], minlength=500)[4:]
    )
    # Most lines are within a row; the others are split between two rows.
    training_text = " ".join(examples(built, "text.xx", "train")).replace(" ", "")
    assert sum(line.replace(" ", "") in training_text for line in lines) > 0.7 * len(lines)
    assert len(task.train.shards) > 1 and sum(task.train.shards) == task.train.rows
    # Neighbours in the text are not neighbours on disk.
    actual = [re.search(r"q(\d+)z", line) for line in examples(built, "text.xx", "train")]
    numbers = [int(number[1]) for number in actual[: task.train.shards[0]] if number]
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.1
    assert task.text.sentences == len(lines) == task.train.sentences + task.held_out.sentences
    assert task.train.tokens / task.train.rows / 64 > 0.99
    assert dropped == {"empty side": 1, held_out.REASON: dropped[held_out.REASON]}


@pytest.mark.slow
def test_the_requested_share_of_lines_is_held_out(built, text):
    low = {}
    for side, language in enumerate(("xx", "yy")):
        lines = (text / f"{language}.txt").read_text().split("\n")
        lines += [p.split("\t")[side] for p in (text / "xx-yy.tsv").read_text().split("\n")]
        lines = [clean(line) for line in lines]
        hashes = line_hashes(lines) < Rule(0.02).threshold
        expected = {line.casefold() for line, is_low in zip(lines, hashes, strict=True) if is_low}
        assert 0.018 < len(expected) / len(set(lines)) < 0.022
        words = {line.split()[-1]: line for line in expected}
        training_lines = examples(built, f"text.{language}", "train")
        training_lines += [p.split("\t")[side] for p in examples(built, "pairs.xx-yy", "train")]
        tails = {" ".join(words[w].split()[-3:]) for w in words}
        joined = " ".join(training_lines).casefold()
        assert not [tail for tail in tails if tail in joined]
        held_out_lines = examples(built, f"text.{language}", "held_out")
        drawn = [line for line in held_out_lines if line.casefold() in expected]
        assert 300 < len(drawn) <= len(held_out_lines)
        # xx is the deciding side of pairs, so it has no companions.
        assert (len(held_out_lines) == len(drawn)) == (language == "xx")
        low[language] = len(expected)
    pairs = built.task("pairs.xx-yy")
    assert 350 < pairs.held_out.sentences < 500
    assert 350 < pairs.text.dropped[held_out.REASON] < 500


@pytest.fixture
def one_line_documents(tmp_path):
    """Returns a function that writes text and pairs to files, and returns the fields of `Data` that
    read them with a lossless vocabulary. Each line is a document, so each example is a line."""

    def write(text: dict[str, list[str]], pairs: dict[str, list[tuple[str, str]]]) -> dict:
        for language, lines in text.items():
            (tmp_path / f"{language}.txt").write_text("\n\n".join(lines))
        for pair, rows in pairs.items():
            (tmp_path / f"{pair}.tsv").write_text("\n".join(map("\t".join, rows)))
        every = [*itertools.chain(*text.values())]
        every += [side for rows in pairs.values() for row in rows for side in row]
        sample = [*every[::5], "".join(sorted(set(itertools.chain(*every))))]
        model = vocabulary_training.train({"all": sample}, {"all": 1}, 800, 1.0)
        (tmp_path / "v.model").write_bytes(model)
        return {
            "languages": tuple(text),
            "mono": (f"{tmp_path}/{{language}}.txt",),
            "pairs": tuple(pairs),
            "parallel": (f"{tmp_path}/{{pair}}.tsv",),
            "vocabulary": f"{tmp_path}/v.model",
            "length": 128,
            "held_out_share": 0.05,
        }

    return write


def phrasebook_text():
    pairs = {pair: list(phrasebook.pair_lines(pair)) for pair in ("en-de", "en-fr", "en-sw")}
    text = {
        language: [line for line in itertools.islice(phrasebook.text_lines(language), 6000) if line]
        for language in ("en", "de", "sw")
    }
    return text, pairs


def shared_english():
    """Translations of one English text into three languages; `text` has English and some German."""
    meanings = [phrasebook.draw(5, index) for index in range(2000)]
    lines_of = {
        language: [phrasebook.realise(meaning, language).text for meaning in meanings]
        for language in ("en", "de", "fr", "sw")
    }
    pairs = {
        f"en-{other}": list(zip(lines_of["en"], lines_of[other], strict=True))
        for other in ("de", "fr", "sw")
    }
    text = {
        "en": [*lines_of["en"], *itertools.islice(filter(None, phrasebook.text_lines("en")), 2000)],
        "de": [line.upper() for line in lines_of["de"][::2]],
    }
    return text, pairs


@pytest.mark.parametrize(
    "make_text", [pytest.param(phrasebook_text, marks=pytest.mark.slow), shared_english]
)
def test_a_sentence_that_is_held_out_anywhere_is_not_trained_on(
    make_text, one_line_documents, config, tmp_path
):
    text, pairs = make_text()
    store = prepare_rows(config(tmp_path, **one_line_documents(text, pairs)))
    hashes_of: dict[tuple[str, str], set[int]] = {}
    for task in store.manifest.tasks:
        for split in ("train", "held_out"):
            rows = [example.split("\t") for example in examples(store, task.name, split)]
            for language, column in zip(task.languages, zip(*rows, strict=True), strict=True):
                hashes = line_hashes([clean(line) for line in column])
                hashes_of.setdefault((language, split), set()).update(hashes.tolist())
    for language in {name for name, _ in hashes_of}:
        assert len(hashes_of[language, "held_out"]) > 60
        assert not hashes_of[language, "held_out"] & hashes_of[language, "train"]
    for task in store.manifest.tasks:
        read = len(pairs.get(task.name[6:], ())) or len(text[task.name[5:]])
        sentences_in_rows = task.train.sentences + task.held_out.sentences
        assert read == task.text.sentences == sentences_in_rows + sum(task.text.dropped.values())
        assert set(task.text.dropped) <= {held_out.REASON} and (task.kind == "pairs") >= len(
            task.text.dropped
        )
    assert sum(task.text.dropped.get(held_out.REASON, 0) for task in store.tasks("pairs")) > 0


@pytest.mark.slow
def test_adding_a_language_does_not_change_the_rows_of_other_languages(
    one_line_documents, config, tmp_path
):
    """Adds two languages and pairs of them with English; one code sorts before the others."""
    text, pairs = shared_english()
    pairs["af-en"] = [(f"af {b}", a) for a, b in pairs["en-sw"]]
    fields = one_line_documents({**text, "fr": ["un", "deux"]}, pairs)
    few = fields | {"languages": ("en", "de"), "pairs": ("en-de", "en-fr")}
    before = prepare_rows(config(tmp_path, **few))
    times = {f: f.stat().st_mtime_ns for folder in folders(before) for f in folder.rglob("*")}
    after = prepare_rows(config(tmp_path, **fields))
    assert after.path != before.path
    for task in before.manifest.tasks:
        assert after.task(task.name) == task
    assert {f: f.stat().st_mtime_ns for f in times} == times
    assert len(after.manifest.tasks) == len(before.manifest.tasks) + 3


def test_counts_in_the_manifest_equal_those_of_the_rows(built):
    for task in built.manifest.tasks:
        for name in ("train", "held_out"):
            split = task.split(name)
            rows = built.read(task.name, name, np.arange(split.rows))["tokens"]
            assert split.tokens == (rows != PAD).sum()
            assert split.examples == (rows == BOS).sum() >= split.rows > 0
            assert (rows != PAD).mean() > 0.96  # held-out examples of all units share rows


def test_the_report_shows_how_much_text_became_rows_and_why_lines_were_dropped(built):
    table = report(built, Data(alpha=0.7))
    for part in (
        "text.xx",
        "pairs.xx-yy",
        f"{LINES + 200:,}",
        "\ndropped from pairs: 390 shares a held-out sentence, 1 empty side",
        "text 64, pairs 256",
        "alpha = 0.7",
        "500 ids, sha256 ",
    ):
        assert part in table
    lines = table.split("\n")
    shares = [float(line.split()[7][:-1]) for line in lines if line.startswith("text.")]
    assert len(shares) == 2 and sum(shares) == pytest.approx(100, abs=0.1)
    assert max(map(len, lines[4:])) <= 80 and not (built.path / FILE).exists()


def test_a_report_of_many_sources_shows_the_worst_and_a_file_has_all(built, tmp_path, monkeypatch):
    store = RowStore(built.path)
    store.path = tmp_path  # other tests compare the files of `built`
    monkeypatch.setattr("xlj.data.rows.report._MOST", 1)
    table = report(store, Data(alpha=0.7))
    file = store.path / FILE
    assert f"1 of 3 sources, worst first; {file} has all:" in table
    sizes = {task.name: task.train.rows for task in store.manifest.tasks}
    assert [name for name in sizes if f"\n{name} " in table] == ["pairs.xx-yy"]  # drops lines
    whole = file.read_text("utf-8")
    assert all(f"\n{name} " in whole for name in sizes)
    (line,) = re.findall(r"\npairs.xx-yy .*", whole)
    assert line.endswith("  390 shares a held-out sentence, 1 empty side")

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr("xlj.data.rows.report.atomic.write", refuse)
    table = report(store, Data(alpha=0.7))
    assert all(f"\n{name} " in table for name in sizes) and "worst" not in table


def test_workers_do_not_change_rows(built, config, tmp_path):
    assert files(prepare_rows(config(tmp_path, workers=3))) == files(built)


@pytest.mark.slow
def test_beam_does_not_change_rows(built, config, tmp_path, capfd):
    pytest.importorskip("apache_beam", reason="apache-beam is not installed")
    store = prepare_rows(config(tmp_path), runner="DirectRunner")
    assert files(store) == files(built)
    output = capfd.readouterr().err
    units, lines = re.findall(r"building rows: ([0-9,]+) (?:units of|lines in)", output)
    assert int(units) > 1
    counted = sum(task.train.sentences for task in store.tasks("text"))
    assert int(lines.replace(",", "")) > counted > 1000


def test_files_that_cannot_be_split_are_named_before_any_work(
    config, text, tmp_path, monkeypatch, capsys
):
    for name, times in (("xx", 3), ("yy", 1)):
        content = (text / f"{name}.txt").read_bytes()
        (tmp_path / f"{name}.txt.gz").write_bytes(gzip.compress(content * times))
    rows_config = config(
        tmp_path / "cache",
        mono=(f"{tmp_path}/{{language}}*.gz",),
        parallel=(f"{text}/xx.txt|{text}/yy.txt",),
    )

    def stop(*job):
        raise KeyboardInterrupt

    monkeypatch.setattr(building.workers, "in_processes", in_this_process)
    monkeypatch.setattr(prepasses.UnitReader, "chunks", stop)
    for size, expected in ((40_000, ("xx.txt.gz", "yy.txt.gz", "yy.txt.")), (1 << 30, ())):
        with pytest.raises(KeyboardInterrupt):
            data = dataclasses.replace(rows_config.data, unit_bytes=size)
            building.build_rows(request_of(dataclasses.replace(rows_config, data=data)))
        output = capsys.readouterr().err
        assert all(name in output for name in expected) and bool(expected) == ("minutes" in output)
        if expected:
            together = sum((text / f"{name}.txt").stat().st_size for name in ("xx", "yy"))
            largest = max(together, (tmp_path / "xx.txt.gz").stat().st_size)
            assert f"The largest has {largest / 1e6:,.0f} MB and takes up to" in output
            assert "and -" not in output  # "and N more" follows only if names are omitted


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason=f"there is no real data at {REAL}")
def test_rows_of_real_text_are_full_and_have_held_out_lines(tmp_path):
    data = Data(
        languages=("sw", "zh", "tr"),
        mono=(f"{REAL}/mono/{{language}}.txt.gz",),
        pairs=("en-sw", "en-yo"),
        parallel=(f"{REAL}/parallel/mafand/train/{{pair}}.tsv.gz",),
        vocabulary_size=4000,
        vocabulary_lines=5000,
        length=128,
        pair_length=256,
        cache=str(tmp_path),
    )
    store = prepare_rows(Config(data=data, objectives=OBJECTIVES))
    for task in store.manifest.tasks:
        assert task.train.tokens / (task.train.rows * task.length) > 0.95
        assert task.held_out.sentences > 100
    chinese = "".join(examples(store, "text.zh", "held_out"))
    assert sum("\u4e00" <= c <= "\u9fff" for c in chinese) > 0.5 * len(chinese)


@pytest.fixture
def sampled(tiny, store):
    """Returns a function that samples the text of `tiny`."""

    def sample(characters=10**9, most_held_out=10**9, unit_bytes=1 << 25):
        config = parse(tiny)
        data = dataclasses.replace(config.data, unit_bytes=unit_bytes)
        config = dataclasses.replace(config, data=data)
        request = request_of(config, Vocabulary.load(store.vocabulary_file))
        return building.sample_text(request, characters, most_held_out)

    return sample


def test_a_sample_of_all_text_has_the_lines_of_the_rows(sampled, store, corpus):
    samples = sampled()
    for task in store.manifest.tasks:
        sample = samples[task.name]
        assert sample.is_whole
        counts = len(sample.train[0]), len(sample.held_out[0])
        rows = task.train.sentences, task.held_out.sentences
        assert counts == rows if task.kind == "text" else counts >= rows  # long pairs are in no row
        assert len(sample.train) == len(sample.held_out) == len(task.languages)
    lines = (corpus / "mono/de.txt").read_text("utf-8").split("\n")
    both = samples["text.de"].train[0] + samples["text.de"].held_out[0]
    assert sorted(both) == sorted(filter(None, lines))
    pairs = (corpus / "pairs/en-de.tsv").read_text("utf-8").split("\n")
    train = samples["pairs.en-de"].train
    assert set(zip(*train, strict=True)) <= {tuple(line.split("\t")) for line in pairs}


def test_a_sample_ends_with_the_unit_that_completes_it(sampled):
    whole, some = sampled(), sampled(characters=2000, unit_bytes=4096)
    train, every = some["text.en"].train[0], whole["text.en"].train[0]
    assert not some["text.en"].is_whole
    assert set(train) <= set(every)
    assert 2000 <= sum(map(len, train)) < 2000 + 2 * 4096
    assert sampled(characters=2000, unit_bytes=4096)["text.en"] == some["text.en"]


def test_held_out_lines_are_sampled_and_keep_their_order(sampled):
    every, some = sampled()["text.en"].held_out[0], sampled(most_held_out=9)["text.en"].held_out[0]
    assert len(some) == 9 < len(every)
    assert some == [line for line in every if line in some]
    assert some != every[:9]
