"""Two real processes: broadcasts, shared storage, and the detection of a slow process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from xla_flags import with_devices

from xlj.cli import distributed_flags
from xlj.cli.parser import Parser
from xlj.config import ConfigError
from xlj.io.own_process import CONTINUE

ROOT = Path(__file__).parents[2]

MEMBER = """
import json, os, signal, sys
from pathlib import Path
from xlj.cli import distributed_flags
from xlj.cli.parser import Parser

parser = Parser("member", "")
distributed_flags.add_flags(parser)
parser.add_argument("folder", type=Path)
parser.add_argument("lost", type=int)
flags = parser.parse_args()
flags.is_process = True
if (code := distributed_flags.join(flags)) is not None:
    sys.exit(code)

import jax
from xlj.config import Config, ConfigError, Data
from xlj.io.atomic import GrowingFiles
from xlj.checkpoints import reading
from xlj.distributed import hosts
from xlj.distributed.hosts import HostSpeeds
from xlj.io import hub
from xlj.training import revisions

hosts.WAIT, index = 1.0, jax.process_index()
value = hosts.broadcast(lambda: ["of", index])
results = {"index": index, "value": value, "hosts": len(hosts.gather_names())}

hub._resolve = lambda place: str(index) * 40  # the branch moves between two requests
config = revisions.pin(Config(data=Data(mono="hf://datasets/o/n@main/{language}.txt")))
results["pinned"] = config.data.mono

def error_of(function, *arguments):
    try:
        function(*arguments)
    except ConfigError as error:
        return str(error)

def refuse():
    raise ConfigError(f"from process {index}")

results["error"] = error_of(hosts.broadcast, refuse)
results["shared"] = error_of(hosts.check_shared, flags.folder, "workdir")
results["unshared"] = error_of(hosts.check_shared, flags.folder / str(index), "workdir")
if index == 0:
    (flags.folder / "0/checkpoints/7").mkdir(parents=True)
results["stale"] = error_of(reading.latest, flags.folder / str(index)) if index else ""
if not index:
    hosts.broadcast(lambda: 7)
results["speeds"] = HostSpeeds(GrowingFiles(flags.folder)).measures(3, 0.25 * index)[0]
(flags.folder / f"results{index}.json").write_text(json.dumps(results))
if index == flags.lost:
    os.kill(os.getpid(), signal.SIGKILL)
while flags.lost >= 0:
    hosts.broadcast(lambda: 0)
"""


def run_two(folder, lost):
    (folder / "member.py").write_text(MEMBER, encoding="utf-8")
    local = [sys.executable, ROOT / "launch/local.py", "-n", "2", "--"]
    return subprocess.run(
        [*local, sys.executable, folder / "member.py", folder, str(lost)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": with_devices(1)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("lost", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_two_processes_agree_and_the_death_of_one_ends_both(tmp_path, lost):
    done = run_two(tmp_path, lost)
    assert done.returncode == CONTINUE, done.stdout
    for process in (0, 1):
        assert f"{process}: error: process {lost} of 2" in done.stdout
    both = [json.loads((tmp_path / f"results{k}.json").read_text("utf-8")) for k in (0, 1)]
    for results in both:
        assert results["value"] == ["of", 0] and results["error"] == "from process 0"
        assert results["pinned"] == [f"hf://datasets/o/n@{'0' * 40}/{{language}}.txt"]
        assert results["hosts"] == 2 and results["shared"] is None
        assert "process 1" in results["unshared"] and "does not see" in results["unshared"]
        assert results["speeds"]["time/most_waiting_process"] == 1
        assert results["speeds"]["time/most_waiting_process_share"] == 0.25
    assert "checkpoints/7" in both[1]["stale"] and "process 1" in both[1]["stale"]
    (line,) = (tmp_path / "hosts.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["waiting_share"] == [0.0, 0.25]
    assert not list(tmp_path.rglob(".shared-*"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--coordinator=a:1"], "--coordinator need --distributed"),
        (["--distributed", "--coordinator=a"], "HOST:PORT"),
        (["--distributed", "--processes=2", "--process=2"], "must be from 0 to 1"),
        (["--distributed"], "set --coordinator=HOST:PORT"),
        (["--distributed", "--coordinator=127.0.0.1:1"], "set --coordinator=HOST:PORT"),
    ],
)
def test_flags_that_do_not_describe_all_processes_are_refused(flags, message, monkeypatch):
    import jax

    def initialize(**options):
        missing = next(name for name in ("num_processes", "process_id") if options[name] is None)
        raise ValueError(f"{missing} must be defined")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    parser = Parser("train", "")
    distributed_flags.add_flags(parser)
    with pytest.raises(ConfigError, match=message):
        distributed_flags.join(parser.read(flags))
