"""Guards of several processes, without JAX: the process that ended first, and the exit codes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xlj.io.own_process import CONTINUE

ROOT = Path(__file__).parents[2]

MEMBER = """
import json, os, signal, sys, time
from pathlib import Path
from xlj.distributed import guard
from xlj.io.processes import be_killed_with_parent

process, processes, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
if not guard.is_watched():
    guard.SILENCE, guard._LATER = float(sys.argv[4]), 1.0
    sys.exit(guard.run())
be_killed_with_parent()
address_file = folder / "address"
if process == 0:
    (folder / "part").write_text(json.dumps(guard.own_address()))
    (folder / "part").rename(address_file)
while not address_file.exists():
    time.sleep(0.01)
guard.report(process, processes, json.loads(address_file.read_text()))
(folder / str(process)).write_text(str(os.getpid()))
while not (folder / f"end{process}").exists():
    time.sleep(0.01)
code = int((folder / f"end{process}").read_text())
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


class Members:
    """Processes with guards. Each process waits for a command to end with an exit code."""

    def __init__(self, folder, count, silence=30.0):
        self.folder = folder
        (folder / "member.py").write_text(MEMBER, encoding="utf-8")
        self.guards = [
            subprocess.Popen(
                [sys.executable, folder / "member.py", str(k), str(count), folder, str(silence)],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stderr=subprocess.PIPE,
                text=True,
            )
            for k in range(count)
        ]
        for k in range(count):
            while not (folder / str(k)).exists() or not (folder / str(k)).read_text():
                time.sleep(0.01)
        self.pids = [int((folder / str(k)).read_text()) for k in range(count)]
        time.sleep(0.5)  # until the guards have received the reports

    def end(self, process, code):
        (self.folder / "code").write_text(str(code))
        (self.folder / "code").rename(self.folder / f"end{process}")

    def wait(self):
        """Returns the exit code and the printed errors of each guard."""
        messages = [guard.communicate(timeout=60)[1] for guard in self.guards]
        return [guard.returncode for guard in self.guards], messages

    def close(self):
        for guard in self.guards:
            guard.kill()


@pytest.fixture
def members(tmp_path):
    groups = []

    def start(count, **more):
        groups.append(Members(tmp_path, count, **more))
        return groups[-1]

    yield start
    for each in groups:
        each.close()


def test_all_guards_exit_with_0_if_all_processes_succeed(members):
    run = members(3)
    for process in range(3):
        run.end(process, 0)
    assert run.wait() == ([0] * 3, [""] * 3)


@pytest.mark.slow
def test_each_process_that_is_asked_to_stop_has_time_to_save(members):
    run = members(2)
    run.end(1, CONTINUE)
    time.sleep(1.5)
    assert run.guards[0].poll() is None
    run.end(0, CONTINUE)
    assert run.wait() == ([CONTINUE] * 2, [""] * 2)


@pytest.mark.parametrize("lost", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_survivors_name_the_process_that_was_killed(members, lost):
    run, begin = members(3), time.monotonic()
    os.kill(run.pids[lost], signal.SIGKILL)
    codes, messages = run.wait()
    assert codes == [CONTINUE] * 3 and time.monotonic() - begin < 15
    assert all(f"process {lost} of 3" in each and "SIGKILL" in each for each in messages)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_the_process_of_a_killed_guard_is_killed_too(members, lost):
    run = members(3)
    run.guards[lost].kill()
    codes, messages = run.wait()
    assert [code for k, code in enumerate(codes) if k != lost] == [CONTINUE] * 2
    assert all(f"process {lost} of 3" in each for k, each in enumerate(messages) if k != lost)
    assert not Path(f"/proc/{run.pids[lost]}").exists()


@pytest.mark.slow
@pytest.mark.parametrize("silent", [0, 1])
def test_a_guard_that_sends_no_messages_counts_as_lost(members, silent):
    run = members(2, silence=4.0)
    run.guards[silent].send_signal(signal.SIGSTOP)
    other = run.guards[1 - silent]
    assert other.wait(timeout=30) == CONTINUE
    assert f"\nerror: process {silent} of 2" in other.stderr.read()


@pytest.mark.slow
def test_a_process_that_fails_because_of_another_is_not_blamed(members):
    """Process 1 fails because process 2 is gone, and the hub may learn about process 1 first."""
    run = members(3)
    run.end(1, 1)
    time.sleep(0.5)
    os.kill(run.pids[2], signal.SIGKILL)
    codes, messages = run.wait()
    assert codes == [CONTINUE] * 3 and all("process 2 of 3" in each for each in messages)


@pytest.mark.slow
def test_an_error_of_one_process_ends_all_with_its_exit_code(members):
    run = members(3)
    run.end(1, 2)
    codes, messages = run.wait()
    assert codes == [2] * 3
    assert (
        "process 1 of 3" in messages[0] + messages[2] and not messages[1]
    )  # it printed its own error


def test_a_guard_passes_the_signal_to_stop_on_to_its_process(members):
    run = members(1)
    run.guards[0].terminate()
    assert run.wait()[0] == [CONTINUE] or run.guards[0].returncode == 128 + signal.SIGTERM
