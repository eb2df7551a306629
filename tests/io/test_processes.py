"""Functions in a child process: results, errors and crashes reach the parent."""

import os
import subprocess
import sys

import pytest

from xlj.config import ConfigError
from xlj.io.processes import in_child


def work(how):
    if how == "refuse":
        raise ConfigError("not so")
    if how == "fail":
        raise KeyError("oh")
    if how == "die":
        os._exit(7)
    return os.getpid(), "x" * 1_000_000  # more than a pipe holds


def test_results_and_errors_reach_the_parent():
    process, text = in_child("working", work, "return")
    assert process != os.getpid() and len(text) == 1_000_000
    with pytest.raises(ConfigError, match="^not so$"):
        in_child("working", work, "refuse")
    with pytest.raises(RuntimeError, match="(?s)working failed:.*KeyError: 'oh'"):
        in_child("working", work, "fail")
    with pytest.raises(RuntimeError, match="working: the child process ended with exit code 7"):
        in_child("working", work, "die")


def test_a_script_without_a_main_guard_runs_once(tmp_path):
    (tmp_path / "plain.py").write_text(
        "import sys\nfrom xlj.io.processes import in_child\n"
        "print('begins')\n"
        "print(in_child('counting', int, '7'), '__file__' in vars(sys.modules['__main__']))\n"
    )
    done = subprocess.run([sys.executable, tmp_path / "plain.py"], capture_output=True, text=True)
    assert done.stdout == "begins\n7 True\n", done.stderr
