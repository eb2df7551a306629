"""Runs a small part of the campaign (`python tests/campaign`); tests that it detects faults."""

import errno
import random
import shutil
from pathlib import Path

import pytest

from xlj.config import ConfigError, parse
from xlj.data.rows.preparing import prepare_rows

CAMPAIGN = Path(__file__).parent / "campaign"


@pytest.fixture
def fuzz(monkeypatch):
    monkeypatch.syspath_prepend(CAMPAIGN)
    import fuzz

    return fuzz


@pytest.fixture(scope="module")
def readers():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(CAMPAIGN)
        import fuzz_inputs
        import fuzz_readers

        return fuzz_readers.every(fuzz_inputs.make())


def test_every_reader_reads_valid_inputs(fuzz, readers, tmp_path):
    for number, reader in enumerate(readers):
        folder = tmp_path / str(number)
        folder.mkdir()
        from fuzz_readers import fill

        fill(folder, reader.files)
        reader.read(folder)


@pytest.mark.parametrize("seed", [0, 1])
def test_malformed_inputs_are_refused_or_read_completely(fuzz, readers, seed):
    outcome = fuzz.run([r for r in readers if r.weight > 1], seed, 0, 900)
    assert outcome.faults == []
    assert outcome.inputs == 900 and outcome.refused.total() > 450 and outcome.read.total() > 90


def test_malformed_configs_and_checkpoints_cause_no_faults(fuzz, readers):
    outcome = fuzz.run([r for r in readers if r.name in ("config", "checkpoint")], 0, 0, 16)
    assert outcome.faults == [] and outcome.refused.total() > 4


def test_the_campaign_detects_faults(fuzz, monkeypatch):
    from fuzz_readers import Lost, Reader, same

    monkeypatch.setattr(fuzz, "SECONDS", 0.05)

    def loses_a_line(folder):
        same("lines", 1, 2)

    def crashes(folder):
        raise IndexError("no")

    def hangs(folder):
        while True:
            pass

    def leaves_a_file(folder):
        (folder / "part").touch()

    def fails_unclearly(folder):
        raise ConfigError("wrong")

    reads = (loses_a_line, crashes, hangs, leaves_a_file, fails_unclearly)
    descriptions = [
        fuzz.run([Reader("x", {"a": b"x"}, read)], 0, 0, 1).faults[0].what for read in reads
    ]
    assert [description.split(":")[0] for description in descriptions] == [
        "lost",
        "IndexError",
        "it took more than 0.05 s",
        "files were left in the folder",
        "unclear error",
    ]
    assert issubclass(Lost, Exception)


def test_equal_seeds_give_equal_mutations(fuzz):
    from mutations import mutated

    content = b'{"a": [1, 2], "b": "x"}\nline\n'
    first, again = ([mutated(content, random.Random(i)) for i in range(300)] for _ in range(2))
    assert first == again and len(set(first)) > 200


def test_damage_to_rows_is_detected_or_has_no_effect(fuzz, tiny, store, tmp_path):
    import faults

    shutil.copytree(store.path.parent, tmp_path / "cache")
    for other in (tmp_path / "cache").glob("*/manifest.json"):
        if other.parent.name != store.path.name:
            shutil.rmtree(other.parent)
    damaged = list(faults.damaged_files(tmp_path / "cache", "rows", 0, 60))
    assert [fault for fault, _ in damaged if fault] == []
    assert sum(detected for _, detected in damaged) > 20
    assert prepare_rows(parse(tiny)).manifest.content_hash == store.manifest.content_hash


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="storage.c needs a C compiler (cc)")
def test_bad_storage_is_reported_and_slow_storage_is_tolerated(fuzz, tmp_path):
    import faults
    import jobs
    import kills

    prepare = jobs.make(tmp_path)[0]
    kills.whole(prepare, tmp_path)
    bad = {"STORAGE_ERROR": errno.ESTALE, "STORAGE_FIRST": 7, "STORAGE_TIMES": 1 << 40}
    for name, variables, outcome in (
        ("bad", bad, "refused"),
        ("never", bad | {"STORAGE_FIRST": 1 << 40}, "no error"),
        ("slow", {"STORAGE_WAIT": 3000}, "no error"),
    ):
        environment = faults.stored_badly(tmp_path, variables)
        assert faults.hurt(prepare, tmp_path, name, **environment) == (outcome, "")


def test_a_crash_or_different_output_of_a_disturbed_command_is_a_fault(fuzz, tmp_path):
    import faults
    from jobs import Job

    crashes = Job("crashes", lambda folder: ["xlj.not_there"], lambda folder: "")
    assert "exit code 1" in faults.hurt(crashes, tmp_path, "x")[1]
    (tmp_path / "other.whole").mkdir()
    other = Job("other", lambda folder: ["this"], lambda folder: folder.name)
    assert "other bits" in faults.hurt(other, tmp_path, "x")[1]
