"""From text to rows: the same rows whoever makes them, nothing held out is trained on, errors are
clear, and what was killed goes on. Rows are built in processes of their own, as users make them."""

import dataclasses
import fcntl
import gzip
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from decoding import decode
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from xlj import phrasebook
from xlj.config import Config, ConfigError, Data, Objectives
from xlj.config.objectives.mlm import MultilingualMLM, TranslationLM
from xlj.data.rows import building, lookahead, units
from xlj.data.rows.preparing import prepare_rows
from xlj.data.rows.report import report
from xlj.data.rows.request import request_of
from xlj.data.rows.shards import Counts, Shards
from xlj.data.rows.store import RowStore
from xlj.data.text import held_out
from xlj.data.text.cleaning import clean, line_hashes
from xlj.data.text.held_out import Rule
from xlj.data.text.reading import UnitReader
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.data.tokenizer.vocabulary import Vocabulary

LINES = 20_000  # more than one unit of work, more than one shard
REAL = Path(__file__).parents[3].parent / "shared" / "data"

READ = Objectives(
    options={"mmlm": MultilingualMLM(batch_rows=1), "tlm": TranslationLM(batch_rows=1)}
)
"""Rows of text and of pairs are wanted."""


def sentences(language: str, count: int) -> list[str]:
    """Lines of made-up words; each ends with a number of its own, so that it can be found again."""
    rng = random.Random(language)
    lexicon = ["".join(rng.choices("abdefgiklmnoprstu", k=rng.randint(2, 7))) for _ in range(300)]
    return [f"{' '.join(rng.choices(lexicon, k=rng.randint(2, 9)))} q{i}z" for i in range(count)]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A folder with text in xx and yy, pairs of both that share lines with it, and a vocabulary."""
    folder = tmp_path_factory.mktemp("text")
    lines = {language: sentences(language, LINES) for language in ("xx", "yy")}
    for language, content in lines.items():
        documents = [line if i % 50 else f"\n{line}" for i, line in enumerate(content)]
        (folder / f"{language}.txt").write_text("\n".join([*documents, *content[:200]]) + "\n")
    shared = [lines[language][:1000] + sentences(f"{language}2", LINES) for language in lines]
    shared[0][7] = shared[0][7].upper().replace(" ", "\u00a0 ")  # still the same sentence
    pairs = [f"{a}\t{b}" for a, b in zip(*shared, strict=True)] + ["\tno first side"]
    (folder / "xx-yy.tsv").write_text("\n".join(pairs))
    sampled = {language: content[:4000] for language, content in lines.items()}
    sampled["xx"] += [clean(shared[0][7]), "abcdefghijklmnopqrstuvwxyz"]
    model = vocabulary_training.train(sampled, {"xx": 1, "yy": 1}, 500, 1.0)
    (folder / "v.model").write_bytes(model)
    return folder


@pytest.fixture(scope="module")
def config(text):
    def of(cache: Path, **fields) -> Config:
        fields = {
            "languages": ("xx", "yy"),
            "mono": (f"{text}/{{language}}.txt",),
            "pairs": ("xx-yy",),
            "parallel": (f"{text}/{{pair}}.tsv",),
            "vocabulary": f"{text}/v.model",
            "length": 64,
            "pair_length": 256,
            "workers": 1,
            "unit_bytes": 40_000,
            "cache": str(cache),
            **fields,
        }
        return Config(data=Data(**fields), objectives=READ)

    return of


@pytest.fixture(scope="module")
def built(config, tmp_path_factory) -> RowStore:
    store = prepare_rows(config(tmp_path_factory.mktemp("built")))
    assert "tensorflow" not in sys.modules and "seqio" not in sys.modules
    return store


def folders(store: RowStore) -> list[Path]:
    """The store's folder, and those that it refers to."""
    return [store.path, *((store.path / task.folder).resolve() for task in store.manifest.tasks)]


def files(store: RowStore) -> dict[str, bytes]:
    return {
        str(file.relative_to(store.path.parent)): file.read_bytes()
        for folder in folders(store)
        for file in folder.rglob("*")
        if file.is_file()
    }


def examples(store: RowStore, task: str, split: str) -> list[str]:
    """The text of each example; the sides of a pair are divided by a tab."""
    vocabulary = Vocabulary.load(store.vocabulary_file)
    found = []
    for row in store.read(task, split, np.arange(store.task(task).split(split).rows)):
        ids = row[row != PAD]
        for example in np.split(ids, np.flatnonzero(ids == BOS)[1:]):
            sides = np.split(example, np.flatnonzero(example == EOS)[:-1] + 1)
            found.append("\t".join(decode(vocabulary, side) for side in sides))
    return found


def test_rows_hold_the_text(built, text):
    pairs = examples(built, "pairs.xx-yy", "train") + examples(built, "pairs.xx-yy", "held_out")
    wanted = [line.replace("\u00a0", "") for line in (text / "xx-yy.tsv").read_text().split("\n")]
    dropped = built.task("pairs.xx-yy").dropped
    assert len(pairs) + dropped[held_out.REASON] == len(wanted) - 1
    assert set(pairs) < set(wanted)
    # Documents are cut into rows and lose their held-out lines, but every token is somewhere.
    task = built.task("text.xx")
    lines = [line for line in (text / "xx.txt").read_text().split("\n") if line]
    ids = Vocabulary.load(built.vocabulary_file).encode(lines).ids
    rows = [built.read("text.xx", s, np.arange(task.split(s).rows)) for s in ("train", "held_out")]
    found = np.concatenate(rows)
    assert np.array_equal(
        np.bincount(ids, minlength=500)[4:], np.bincount(found[found != PAD], minlength=500)[4:]
    )
    # Most lines are whole in a row, the others run over its end.
    kept = " ".join(examples(built, "text.xx", "train")).replace(" ", "")
    assert sum(line.replace(" ", "") in kept for line in lines) > 0.7 * len(lines)
    assert len(task.train.shards) > 1 and sum(task.train.shards) == task.train.rows
    # Neighbours in the text are no neighbours on disk.
    found = [re.search(r"q(\d+)z", line) for line in examples(built, "text.xx", "train")]
    numbers = [int(number[1]) for number in found[: task.train.shards[0]] if number]
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.1
    assert task.sentences == len(lines) == task.train.sentences + task.held_out.sentences
    assert task.train.tokens / task.train.rows / 64 > 0.99
    assert dropped == {"empty side": 1, held_out.REASON: dropped[held_out.REASON]}


def test_the_share_that_is_asked_for_is_held_out(built, text):
    low = {}
    for side, language in enumerate(("xx", "yy")):
        lines = (text / f"{language}.txt").read_text().split("\n")
        lines += [p.split("\t")[side] for p in (text / "xx-yy.tsv").read_text().split("\n")]
        lines = [clean(line) for line in lines]
        hashes = line_hashes(lines) < Rule(0.02).threshold
        out = {line.casefold() for line, is_low in zip(lines, hashes, strict=True) if is_low}
        assert 0.018 < len(out) / len(set(lines)) < 0.022
        words = {line.split()[-1]: line for line in out}
        trained = examples(built, f"text.{language}", "train")
        trained += [p.split("\t")[side] for p in examples(built, "pairs.xx-yy", "train")]
        tails = {" ".join(words[w].split()[-3:]) for w in words}
        joined = " ".join(trained).casefold()
        assert not [tail for tail in tails if tail in joined]
        aside = examples(built, f"text.{language}", "held_out")
        drawn = [line for line in aside if line.casefold() in out]
        assert 300 < len(drawn) <= len(aside)
        # xx decides about pairs: of its language there are no companions.
        assert (len(aside) == len(drawn)) == (language == "xx")
        low[language] = len(out)
    pairs = built.task("pairs.xx-yy")
    assert 350 < pairs.held_out.sentences < 500
    assert 350 < pairs.dropped[held_out.REASON] < 500


@pytest.fixture
def one_line_documents(tmp_path):
    """Writes text and pairs as files; each line of text is a document, so that an example is a
    line. Returns the fields of `Data` that read them, with a vocabulary that loses nothing."""

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
    """Three languages translate the same English, which is text as well; so are some sides."""
    meanings = [phrasebook.draw(5, index) for index in range(2000)]
    said = {
        language: [phrasebook.realise(meaning, language).text for meaning in meanings]
        for language in ("en", "de", "fr", "sw")
    }
    pairs = {
        f"en-{other}": list(zip(said["en"], said[other], strict=True))
        for other in ("de", "fr", "sw")
    }
    text = {
        "en": [*said["en"], *itertools.islice(filter(None, phrasebook.text_lines("en")), 2000)],
        "de": [line.upper() for line in said["de"][::2]],
    }
    return text, pairs


@pytest.mark.parametrize("made_up", [phrasebook_text, shared_english])
def test_no_sentence_held_out_anywhere_is_trained_on(made_up, one_line_documents, config, tmp_path):
    text, pairs = made_up()
    store = prepare_rows(config(tmp_path, **one_line_documents(text, pairs)))
    found: dict[tuple[str, str], set[int]] = {}
    for task in store.manifest.tasks:
        for split in ("train", "held_out"):
            rows = [example.split("\t") for example in examples(store, task.name, split)]
            for language, column in zip(task.languages, zip(*rows, strict=True), strict=True):
                hashes = line_hashes([clean(line) for line in column])
                found.setdefault((language, split), set()).update(hashes.tolist())
    for language in {name for name, _ in found}:
        assert len(found[language, "held_out"]) > 60
        assert not found[language, "held_out"] & found[language, "train"]
    for task in store.manifest.tasks:
        read = len(pairs.get(task.name[6:], ())) or len(text[task.name[5:]])
        kept = task.train.sentences + task.held_out.sentences
        assert read == task.sentences == kept + sum(task.dropped.values())
        assert set(task.dropped) <= {held_out.REASON} and (task.kind == "pairs") >= len(
            task.dropped
        )
    assert sum(task.dropped.get(held_out.REASON, 0) for task in store.tasks("pairs")) > 0


def test_a_language_that_is_added_changes_no_other(one_line_documents, config, tmp_path):
    """Pairs of English with two languages, then with two more, one of them before it by code."""
    text, pairs = shared_english()
    pairs["af-en"] = [(f"af {b}", a) for a, b in pairs["en-sw"]]
    fields = one_line_documents({**text, "fr": ["un", "deux"]}, pairs)
    few = fields | {"languages": ("en", "de"), "pairs": ("en-de", "en-fr")}
    before = prepare_rows(config(tmp_path, **few))
    there = {f: f.stat().st_mtime_ns for folder in folders(before) for f in folder.rglob("*")}
    after = prepare_rows(config(tmp_path, **fields))
    assert after.path != before.path
    for task in before.manifest.tasks:
        assert after.task(task.name) == task
    assert {f: f.stat().st_mtime_ns for f in there} == there
    assert len(after.manifest.tasks) == len(before.manifest.tasks) + 3


def test_counts_of_the_manifest_are_those_of_the_rows(built):
    for task in built.manifest.tasks:
        for name in ("train", "held_out"):
            split = task.split(name)
            rows = built.read(task.name, name, np.arange(split.rows))
            assert split.tokens == (rows != PAD).sum()
            assert split.examples == (rows == BOS).sum() >= split.rows > 0


def test_the_report_says_what_became_of_the_text(built):
    table = report(built, 0.7)
    for part in (
        "text.xx",
        "pairs.xx-yy",
        f"{LINES + 200:,}",
        "1 dropped, empty side",
        "alpha = 0.7",
        "500 ids, sha256 ",
    ):
        assert part in table
    shares = [float(line.split()[-1]) for line in table.split("\n") if line.startswith("text.")]
    assert sum(shares) == pytest.approx(100, abs=0.01)


def test_a_vocabulary_trained_here_and_then_given_has_the_same_rows(config, tmp_path):
    trained = config(tmp_path, vocabulary="", vocabulary_size=500, vocabulary_lines=2000)
    store = prepare_rows(trained)
    moved = tmp_path / "of_a_checkpoint.model"
    moved.write_bytes(store.vocabulary_file.read_bytes())
    given = config(tmp_path, vocabulary=str(moved))
    before = {file: file.stat().st_mtime_ns for f in folders(store) for file in f.rglob("*.rows")}
    again = prepare_rows(given)
    assert again.manifest.tasks == store.manifest.tasks and folders(again)[1:] == folders(store)[1:]
    assert again.manifest.content_hash == store.manifest.content_hash
    assert prepare_rows(trained).path == store.path != again.path
    assert {file: file.stat().st_mtime_ns for file in before} == before
    shorter = dataclasses.replace(trained.data, length=32)
    other = prepare_rows(Config(data=shorter, objectives=READ))
    assert other.path != store.path
    assert other.manifest.vocabulary_digest == store.manifest.vocabulary_digest
    assert len(list((tmp_path / "vocabularies").glob("*.model"))) == 1


def test_the_type_of_a_vocabulary_is_that_of_the_config(config, tmp_path):
    options = {"vocabulary_type": "bpe", "vocabulary_size": 500, "vocabulary_lines": 2000}
    store = prepare_rows(config(tmp_path, vocabulary="", **options))
    trainer = ModelProto.FromString(store.vocabulary_file.read_bytes()).trainer_spec
    assert trainer.model_type == trainer.BPE  # unigram is the default
    folded = prepare_rows(config(tmp_path, vocabulary="", vocabulary_lowercase=True, **options))
    for made, folds in ((store, False), (folded, True)):
        pieces = Vocabulary.load(made.vocabulary_file).encode_batch(["HELLO Hello", "hello hello"])
        assert np.array_equal(*pieces) == folds
    assert folded.manifest.vocabulary_digest != store.manifest.vocabulary_digest


def test_a_vocabulary_without_a_size_is_that_of_its_languages(config, tmp_path):
    pairs = ("en-fr", "en-zh-CN")
    four = Data(languages=("en", "de"), pairs=pairs, vocabulary_size=0)
    assert four.trained_ids == 10_000
    assert Data(vocabulary_size=5).trained_ids == 5
    options = {"vocabulary_size": 0, "vocabulary_lines": 2000}
    fewer = prepare_rows(config(tmp_path, vocabulary="", **options))  # 8,000 are too many here
    assert 400 < Vocabulary.load(fewer.vocabulary_file).size < 8000
    again = prepare_rows(config(tmp_path, vocabulary="", **options))
    assert again.path == fewer.path


def test_workers_do_not_change_rows(built, config, tmp_path):
    assert files(prepare_rows(config(tmp_path, workers=3))) == files(built)


def test_beam_does_not_change_rows(built, config, tmp_path, capfd):
    pytest.importorskip("apache_beam", reason="apache-beam is not installed")
    store = prepare_rows(config(tmp_path), runner="DirectRunner")
    assert files(store) == files(built)
    told = capfd.readouterr().err
    units, lines = re.findall(r"building rows: ([0-9,]+) (?:units of|lines in)", told)
    assert int(units) > 1
    counted = sum(task.train.sentences for task in store.tasks("text"))
    assert int(lines.replace(",", "")) > counted > 1000


def test_a_killed_run_stops_at_once_and_goes_on(built, config, tmp_path):
    run = start(tmp_path, ENSURE, config(tmp_path))
    wait_for(lambda: [f for f in tmp_path.glob("*.*/*/units/*.json")], run)
    run.send_signal(signal.SIGKILL)
    run.wait()
    with (tmp_path / ".lock").open("w") as lock:  # the child holds it as long as it lives
        wait_for(lambda: try_lock(lock), None, seconds=5)
    time.sleep(0.5)
    written = set(tmp_path.rglob("*"))
    time.sleep(1)
    assert set(tmp_path.rglob("*")) == written  # the workers have ended too
    assert not (tmp_path / built.path.name / "manifest.json").exists()
    (tmp_path / "text.xx" / "x.part").touch()  # a leftover of a write
    done = {f: f.stat().st_mtime_ns for f in tmp_path.glob("*.*/*/0*.rows")}
    assert files(prepare_rows(config(tmp_path))) == files(built)
    assert {f: f.stat().st_mtime_ns for f in done} == done  # what was finished was left alone
    assert not (tmp_path / "text.xx" / "x.part").exists()
    assert not [f for f in tmp_path.rglob("*") if f.name == "units"]


def test_a_killed_run_loses_what_was_in_flight_only(built, config, tmp_path, monkeypatch):
    """One process stops in each seventh unit that it reads; every other unit is read once."""
    read, stopped = [], 0

    class Killed(UnitReader):
        def chunks(self):
            read.append(self._unit)
            if len(read) % 7 == 0:
                raise KeyboardInterrupt
            yield from super().chunks()

    monkeypatch.setattr(units, "UnitReader", Killed)
    monkeypatch.setattr(building.workers, "in_processes", here)
    while not (tmp_path / built.path.name / "manifest.json").exists():
        try:
            building.build_rows(request_of(config(tmp_path)))
        except KeyboardInterrupt:
            stopped += 1
            assert stopped < 99, "nothing is kept"
    assert stopped > 5 and len(read) == len(set(read)) + stopped
    assert files(RowStore(tmp_path / built.path.name)) == files(built)


@contextmanager
def here(workers):
    """Runs jobs in this process."""

    def run(doing, jobs):
        for job in jobs:
            job()

    yield run


def test_what_cannot_be_cut_is_named_before_any_work(config, text, tmp_path, monkeypatch, capsys):
    for name, times in (("xx", 3), ("yy", 1)):
        content = (text / f"{name}.txt").read_bytes()
        (tmp_path / f"{name}.txt.gz").write_bytes(gzip.compress(content * times))
    asked = config(
        tmp_path / "cache",
        mono=(f"{tmp_path}/{{language}}*.gz",),
        parallel=(f"{text}/xx.txt|{text}/yy.txt",),
    )

    def stop(*job):
        raise KeyboardInterrupt

    monkeypatch.setattr(building.workers, "in_processes", here)
    monkeypatch.setattr(lookahead.UnitReader, "chunks", stop)
    for size, named in ((40_000, ("xx.txt.gz", "yy.txt.gz", "yy.txt.")), (1 << 30, ())):
        with pytest.raises(KeyboardInterrupt):
            data = dataclasses.replace(asked.data, unit_bytes=size)
            building.build_rows(request_of(dataclasses.replace(asked, data=data)))
        said = capsys.readouterr().err
        assert all(name in said for name in named) and bool(named) == ("minutes" in said)
        if named:
            together = sum((text / f"{name}.txt").stat().st_size for name in ("xx", "yy"))
            most = max(together, (tmp_path / "xx.txt.gz").stat().st_size)
            assert f"The largest has {most / 1e6:,.0f} MB: about" in said


def test_a_damaged_unit_is_made_again(built, config, tmp_path):
    asked = config(tmp_path)
    prepare_rows(asked)
    (shard,) = {f for f in tmp_path.glob("text.yy/*/00001.rows")}
    units = Shards(shard.parent, "text", 40, 64, "<u2")
    for file in (shard, shard.with_suffix(".json")):
        file.unlink()
    with units.writing_unit(17, Counts()) as add:
        add(np.zeros((3, 64), np.uint16), np.zeros((0, 64), np.uint16))
    note = units.unit_file(17).with_suffix(".json")
    note.write_text(note.read_text().replace('"sha256": "', '"sha256": "0'))
    with pytest.raises(RuntimeError, match="00000017.rows is damaged; start again"):
        prepare_rows(asked)
    assert files(prepare_rows(asked)) == files(built)


def test_a_shard_that_was_deleted_is_made_again(built, config, tmp_path):
    asked = config(tmp_path)
    store = prepare_rows(asked)
    before = files(store)
    file = store.file("text.xx", 0)
    others = {f: f.stat().st_mtime_ns for f in tmp_path.rglob("*.rows") if f != file.resolve()}
    file.unlink()
    assert files(prepare_rows(asked)) == before
    assert {f: f.stat().st_mtime_ns for f in others} == others


ENSURE = "from xlj.data.rows.preparing import prepare_rows\nprepare_rows(config)"


def start(folder: Path, code: str, config: Config, *arguments: Path) -> subprocess.Popen:
    """Runs code in which `config` is this config, as a script of its own."""
    data = json.dumps(dataclasses.asdict(config.data))
    lines = [
        "import json, sys",
        "from xlj.config import Config, Data, Objectives",
        "from xlj.config.objectives.mlm import MultilingualMLM, TranslationLM",
        f"fields = json.loads({data!r})",
        "fields = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}",
        "if __name__ == '__main__':",
        "    on = {'mmlm': MultilingualMLM(batch_rows=1), 'tlm': TranslationLM(batch_rows=1)}",
        "    config = Config(data=Data(**fields), objectives=Objectives(options=on))",
        textwrap.indent(textwrap.dedent(code), "    "),
    ]
    (folder / "run.py").write_text("\n".join(lines))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen([sys.executable, folder / "run.py", *arguments], env=environment)


def wait_for(condition, run, seconds: float = 60):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert run is None or run.poll() is None, "the run ended too early"
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)
    return found


def try_lock(file) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_sigterm_stops_the_builder(config, tmp_path):
    run = start(tmp_path, ENSURE, config(tmp_path))
    (lock,) = wait_for(lambda: list(tmp_path.glob(".lock")), run)
    wait_for(lambda: list(tmp_path.glob("companions")), run)
    run.terminate()
    assert run.wait(timeout=20) == 143
    with lock.open("w") as file:
        assert wait_for(lambda: try_lock(file), None, seconds=5)


def test_errors_of_the_builder_are_config_errors_here(config, tmp_path):
    too_large = config(tmp_path, vocabulary="", vocabulary_size=200_000, vocabulary_lines=2000)
    with pytest.raises(ConfigError, match="vocabulary_size=200000 is too large .* at most"):
        prepare_rows(too_large)
    unknown = config(tmp_path, mono=("seqio:no_such_task#text",), languages=("xx",))
    with pytest.raises(ConfigError, match="no_such_task#text: no seqio Task of this name"):
        prepare_rows(unknown)
    none = config(tmp_path, filter="json:no_such")
    with pytest.raises(ConfigError, match="data.filter=json:no_such: module 'json' has no"):
        prepare_rows(none)
    short = config(tmp_path, pair_length=8, mono=(), languages=())
    with pytest.raises(ConfigError, match="pairs.xx-yy yields no training rows.*too long"):
        prepare_rows(short)


USERS_MODULE = """
import seqio, tensorflow as tf

def dataset(split, shuffle_files, seed=None):
    texts = [f"first line {i}\\nsecond line {i}" for i in range(3000)]
    return tf.data.Dataset.from_tensor_slices({"inputs": texts, "targets": texts[::-1]})

string = seqio.Feature(seqio.PassThroughVocabulary(0), add_eos=False, dtype=tf.string, rank=0)
seqio.TaskRegistry.add("users.task", source=seqio.FunctionDataSource(dataset, ["train"]),
                       preprocessors=[], output_features={"inputs": string, "targets": string})
seqio.TaskRegistry.add("users.other", source=seqio.FunctionDataSource(
                           lambda split, shuffle_files, seed=None: tf.data.Dataset.from_tensors(
                               {"inputs": "other line", "targets": ""}), ["train"]),
                       preprocessors=[], output_features={"inputs": string, "targets": string})
seqio.MixtureRegistry.add("users.mixture", [("users.task", 1), ("users.other", 9)])
"""
STORE_TFDS = """
import importlib.resources.abc, sys
# TFDS 4.9.10 needs this backport to write (not to read) and does not declare it.
sys.modules.setdefault("importlib_resources", importlib.resources)
import tensorflow as tf, tensorflow_datasets as tfds
texts = [f"tfds line {i}\\nand more {i}" for i in range(2000)]
data = tf.data.Dataset.from_tensor_slices({"doc": {"body": texts}})
tfds.dataset_builders.store_as_tfds_dataset(
    "tiny", version="1.0.0", data_dir=sys.argv[1], split_datasets={"train": data},
    features=tfds.features.FeaturesDict({"doc": {"body": tfds.features.Text()}}))
"""


def test_seqio_and_tfds_sources(config, text, tmp_path, monkeypatch):
    (tmp_path / "users_module.py").write_text(USERS_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    subprocess.run([sys.executable, "-c", STORE_TFDS, tmp_path / "tfds"], check=True)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    store = prepare_rows(
        config(
            tmp_path / "cache",
            languages=("xx",),
            mono=("seqio:users.mixture#inputs", "tfds:tiny:1.0.0#doc.body"),
            pairs=("xx-yy",),
            parallel=("seqio:users.task#inputs|targets",),
            seqio_modules=("users_module",),
            held_out_share=0.0,
        )
    )
    texts = examples(store, "text.xx", "train")
    assert len(texts) == 5001  # documents, none of which were joined; of a Mixture each once
    assert "other line" in texts
    assert "first line 17 second line 17" in texts and "tfds line 1999 and more 1999" in texts
    pairs = examples(store, "pairs.xx-yy", "train")
    assert len(pairs) == 3000
    assert "first line 0 second line 0\tfirst line 2999 second line 2999" in pairs
    assert store.task("text.xx").sentences == 10_001
    assert "held-out rows" not in report(store, 0.7)  # none were asked for
    assert not list(tmp_path.rglob("companions/*"))


TASKS = """
import itertools, seqio
from xlj.data.rows.preparing import register_seqio
from xlj.data.rows.request import request_of
from xlj.data.text.reading import Reading, UnitReader
register_seqio(config)
for task in request_of(config).tasks:
    of = seqio.get_mixture_or_task("xlj." + task.name.replace("-", "_"))
    units = task.units(config.data.unit_bytes)
    assert len(units) > 2 and len(of.source.list_shards("train")) == len(units)
    parts = []
    for i, unit in enumerate(units):
        chunks = UnitReader(unit, i, Reading.of(config.data)).chunks()
        parts.append([row for chunk in chunks for row in zip(*chunk.columns, strict=True)])
    for shard in (None, seqio.ShardInfo(1, 3)):
        data = of.get_dataset(None, "train", shuffle=False, shard_info=shard)
        names = ("text",) if len(task.languages) == 1 else ("source", "target")
        got = [tuple(e[n].decode() for n in names) for e in data.as_numpy_iterator()]
        wanted = parts if shard is None else parts[1::3]
        assert got == list(itertools.chain(*wanted)), (task.name, shard)
"""


def test_each_seqio_task_is_the_text_that_rows_are_made_of(config, tmp_path):
    assert start(tmp_path, TASKS, config(tmp_path, unit_bytes=100_000)).wait() == 0


MIXTURE = """
import seqio
from xlj.data.rows.preparing import register_seqio
names = register_seqio(config)
assert names == ["xlj.text.xx", "xlj.text.yy", "xlj.pairs.xx_yy", "xlj.text", "xlj.pairs"], names
assert register_seqio(config) == names
def draw(name, count):
    mixture = seqio.get_mixture_or_task(name)
    data = mixture.get_dataset(None, "train", shuffle=False, num_epochs=None, seed=1).take(count)
    return [{k: v.decode() for k, v in e.items()} for e in data.as_numpy_iterator()]
json.dump((draw("xlj.text", 20_000), draw("xlj.pairs", 500)), open(sys.argv[1], "w"))
"""


def test_the_mixture_draws_the_texts_of_the_rows_at_their_rates(built, config, text, tmp_path):
    few = text / "few"
    few.mkdir()
    (few / "xx.txt").write_text((text / "xx.txt").read_text())
    (few / "yy.txt").write_text("\n".join(sentences("yy", 1500)))
    asked = config(tmp_path, mono=(f"{few}/{{language}}.txt",), held_out_share=0.0, length=256)
    asked = dataclasses.replace(asked, data=dataclasses.replace(asked.data, alpha=0.5))
    store = prepare_rows(asked)
    assert start(tmp_path, MIXTURE, asked, tmp_path / "drawn").wait() == 0
    lines, pairs = json.loads((tmp_path / "drawn").read_bytes())
    tokens = [task.train.tokens for task in store.tasks("text")]
    share = tokens[0] ** 0.5 / (tokens[0] ** 0.5 + tokens[1] ** 0.5)
    assert 0.7 < share < 0.85
    first = set((few / "xx.txt").read_text().split("\n"))
    assert np.mean([line["text"] in first for line in lines]) == pytest.approx(share, abs=0.015)
    known = set(examples(store, "pairs.xx-yy", "train"))
    drawn = {f"{pair['source']}\t{pair['target']}".replace("\u00a0", " ") for pair in pairs}
    assert len(drawn) == 500 and drawn <= known
    every = " ".join(examples(store, "text.yy", "train"))
    drawn_lines = {line["text"] for line in lines if line["text"] and line["text"] not in first}
    assert len(drawn_lines) == 1500
    assert sum(line in every for line in drawn_lines) > 1350  # the others run over a row's end


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason=f"there is no real data at {REAL}")
def test_real_text(tmp_path):
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
    store = prepare_rows(Config(data=data, objectives=READ))
    for task in store.manifest.tasks:
        assert task.train.tokens / (task.train.rows * task.length) > 0.95
        assert task.held_out.sentences > 100
    chinese = "".join(examples(store, "text.zh", "held_out"))
    assert sum("\u4e00" <= c <= "\u9fff" for c in chinese) > 0.5 * len(chinese)
