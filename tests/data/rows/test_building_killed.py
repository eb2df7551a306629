"""After a build was killed, stopped or damaged, the same command resumes it."""

import fcntl
import signal
import time

import numpy as np
import pytest
from made_rows import PREPARE_ROWS, files, in_this_process, start, wait_for

from xlj.config import ConfigError
from xlj.data.rows import building, units
from xlj.data.rows.preparing import prepare_rows
from xlj.data.rows.request import request_of
from xlj.data.rows.shards import Counts, Shards
from xlj.data.rows.store import RowStore
from xlj.data.text.text_units import UnitReader


@pytest.mark.slow
def test_a_killed_run_stops_at_once_and_resumes(built, config, tmp_path):
    run = start(tmp_path, PREPARE_ROWS, config(tmp_path))
    wait_for(lambda: [f for f in tmp_path.glob("*.*/*/units/*.json")], run)
    run.send_signal(signal.SIGKILL)
    run.wait()
    with (tmp_path / ".lock").open("w") as lock:  # the child holds it while it runs
        wait_for(lambda: try_lock(lock), None, seconds=5)
    time.sleep(0.5)
    written = set(tmp_path.rglob("*"))
    time.sleep(1)
    assert set(tmp_path.rglob("*")) == written  # the workers have ended too
    assert not (tmp_path / built.path.name / "manifest.json").exists()
    (tmp_path / "text.xx" / "x.part").touch()  # left by an interrupted write
    done = {f: f.stat().st_mtime_ns for f in tmp_path.glob("*.*/*/0*.rows")}
    assert files(prepare_rows(config(tmp_path))) == files(built)
    assert {f: f.stat().st_mtime_ns for f in done} == done  # finished parts did not change
    assert not (tmp_path / "text.xx" / "x.part").exists()
    assert not [f for f in tmp_path.rglob("*") if f.name == "units"]


def test_a_killed_run_loses_only_unfinished_units(built, config, tmp_path, monkeypatch):
    """The build stops in every seventh unit that it reads; every other unit is read once."""
    units_read, stops = [], 0

    class StoppingReader(UnitReader):
        def chunks(self):
            units_read.append(self._unit)
            if len(units_read) % 7 == 0:
                raise KeyboardInterrupt
            yield from super().chunks()

    monkeypatch.setattr(units, "UnitReader", StoppingReader)
    monkeypatch.setattr(building.workers, "in_processes", in_this_process)
    while not (tmp_path / built.path.name / "manifest.json").exists():
        try:
            building.build_rows(request_of(config(tmp_path)))
        except KeyboardInterrupt:
            stops += 1
            assert stops < 99, "no progress is saved"
    assert stops > 5 and len(units_read) == len(set(units_read)) + stops
    assert files(RowStore(tmp_path / built.path.name)) == files(built)


@pytest.mark.slow
def test_a_damaged_unit_is_rebuilt(built, config, tmp_path):
    rows_config = config(tmp_path)
    prepare_rows(rows_config)
    (shard,) = {f for f in tmp_path.glob("text.yy/*/00001.rows")}
    shards = Shards(shard.parent, "text", 40, 64, "<u2")
    for file in (shard, shard.with_suffix(".json")):
        file.unlink()
    with shards.writing_unit(17, Counts()) as add:
        add(*({"tokens": np.zeros((rows, 64), np.uint16)} for rows in (3, 0)))
    note = shards.unit_file(17).with_suffix(".json")
    note.write_text(note.read_text().replace('"sha256": "', '"sha256": "0'))
    with pytest.raises(RuntimeError, match="00000017.rows is damaged; run the command again"):
        prepare_rows(rows_config)
    assert files(prepare_rows(rows_config)) == files(built)


@pytest.mark.slow
def test_a_deleted_shard_is_rebuilt(built, config, tmp_path):
    rows_config = config(tmp_path)
    store = prepare_rows(rows_config)
    before = files(store)
    file = store.file("text.xx", 0)
    others = {f: f.stat().st_mtime_ns for f in tmp_path.rglob("*.rows") if f != file.resolve()}
    file.unlink()
    assert files(prepare_rows(rows_config)) == before
    assert {f: f.stat().st_mtime_ns for f in others} == others


def try_lock(file) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_sigterm_stops_the_builder(config, tmp_path):
    run = start(tmp_path, PREPARE_ROWS, config(tmp_path))
    (lock,) = wait_for(lambda: list(tmp_path.glob(".lock")), run)
    wait_for(lambda: list(tmp_path.glob("companions")), run)
    run.terminate()
    assert run.wait(timeout=20) == 143
    with lock.open("w") as file:
        assert wait_for(lambda: try_lock(file), None, seconds=5)


@pytest.mark.slow
def test_errors_of_the_builder_process_are_raised_as_config_errors(config, tmp_path):
    too_large = config(tmp_path, vocabulary="", vocabulary_size=200_000, vocabulary_lines=2000)
    with pytest.raises(ConfigError, match="vocabulary_size=200000 is too large .* at most"):
        prepare_rows(too_large)
    no_filter = config(tmp_path, filter="json:no_such")
    with pytest.raises(ConfigError, match="data.filter=json:no_such: module 'json' has no"):
        prepare_rows(no_filter)
    too_short = config(tmp_path, pair_length=8, mono=(), languages=())
    with pytest.raises(ConfigError, match="pairs.xx-yy has no training rows.*too long"):
        prepare_rows(too_short)


@pytest.mark.slow
@pytest.mark.seqio
def test_an_unknown_seqio_task_is_a_config_error(config, tmp_path):
    unknown = config(tmp_path, mono=("seqio:no_such_task#text",), languages=("xx",))
    with pytest.raises(ConfigError, match="no_such_task#text: no seqio Task of this name"):
        prepare_rows(unknown)
