"""A function with a clock returns, fails, and does not keep Ctrl-C from the process."""

import hashlib
import os
import pty
import signal
import subprocess
import sys
import termios

import pytest

from xlj.io.clock import run_with_clock

SLEEPS = """
import sys, time
from xlj.io.clock import run_with_clock
run_with_clock("sleeping", time.sleep, float(sys.argv[1]))
"""


def test_the_result_and_the_error_are_those_of_the_function(capsys):
    assert run_with_clock("dividing", divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        run_with_clock("dividing", divmod, 7, 0)
    assert capsys.readouterr() == ("", "")  # no terminal


def test_a_terminal_shows_the_elapsed_time():
    reader, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    os.set_blocking(reader, False)
    command = [sys.executable, "-c", SLEEPS, "1.5"]
    subprocess.run(command, stderr=terminal, check=True, timeout=60)
    shown = os.read(reader, 10_000).decode()
    assert "[00:00] sleeping" in shown and "[00:01] sleeping" in shown
    os.close(reader), os.close(terminal)


def test_a_signal_does_not_wait_for_the_function():
    """The function is in C, where no signal handler of Python runs."""
    done = []

    def compute():
        hashlib.pbkdf2_hmac("sha256", b"", b"", 4_000_000)  # seconds
        done.append(True)

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_with_clock("computing", compute)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not done
