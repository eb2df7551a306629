"""Ctrl-C, once and twice, while the main thread is in code that Python's signals do not reach."""

import hashlib
import os
import signal
import threading
import time

import pytest

from xlj.distributed.preemption import Preemption


def press_while_computing(times):
    """SIGINT so many times, as it comes from a terminal, while the main thread computes."""

    def press():
        for _ in range(times):
            time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)  # longer than all of them take
    thread.join()


def test_once_asks_the_run_to_stop_and_twice_raises_at_once(capfd):
    before, wakeup = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
    for times in (1, 2):
        preemption = Preemption()
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
