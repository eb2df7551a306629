"""Signals end a run, even if its main thread runs code that delays Python's signal handlers."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from xlj.distributed.preemption import Preemption


def press_while_computing(times):
    """Sends SIGINT `times` times while the main thread computes, as Ctrl-C in a terminal does."""

    def press():
        for _ in range(times):
            time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)  # takes longer than all signals
    thread.join()


def test_one_ctrl_c_requests_a_stop_and_a_second_one_raises_at_once(capfd):
    before, wakeup = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
    for times in (1, 2):
        preemption = Preemption()
        preemption.started()
        assert not preemption.requested()
        if times == 1:
            press_while_computing(1)
        else:
            with pytest.raises(KeyboardInterrupt):
                press_while_computing(2)
        assert preemption.by_user == preemption.requested() == (times == 1)
        preemption.close()
    assert capfd.readouterr().err.count("Ctrl-C: finishing this step") == 1
    assert signal.getsignal(signal.SIGINT) is before and signal.set_wakeup_fd(wakeup) == -1


STARTING = """
import hashlib
from xlj.distributed.preemption import Preemption
Preemption.owns_process = True
preemption = Preemption(3)
print("starting", flush=True)
hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000_000)  # a minute in code like XLA's
print("started")
"""


@pytest.mark.parametrize("sent, code", [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_before_the_first_step_ends_the_process_although_its_main_thread_is_busy(
    sent, code
):
    with subprocess.Popen(
        [sys.executable, "-c", STARTING],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "starting\n"
        process.send_signal(sent)
        printed, errors = process.communicate(timeout=30)
    assert (process.returncode, printed) == (code, "")
    assert errors == "\nstopped before the first step; the same command resumes from step 3\n"


@pytest.mark.parametrize("owns_process", [True, False])
def test_signal_handlers_are_restored(monkeypatch, owns_process):
    monkeypatch.setattr(Preemption, "owns_process", owns_process)
    numbers = signal.SIGTERM, signal.SIGINT
    before, threads = [*map(signal.getsignal, numbers)], threading.active_count()
    for is_started in (False, True):
        preemption = Preemption()
        assert threading.active_count() == threads + owns_process
        if is_started:
            preemption.started()
            preemption.started()
            assert threading.active_count() == threads
            os.kill(os.getpid(), signal.SIGTERM)
            assert preemption.requested() and not preemption.by_user
        preemption.close()
        assert [*map(signal.getsignal, numbers)] == before
        assert threading.active_count() == threads


def test_a_program_that_calls_xlj_is_interrupted_before_the_first_step():
    preemption = Preemption()
    with pytest.raises(KeyboardInterrupt):
        press_while_computing(1)
    assert not preemption.requested()
    preemption.close()
