"""Work in a process of its own: what it returns, refuses, or dies of comes back."""

import os

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


def test_what_comes_back():
    process, text = in_child("working", work, "return")
    assert process != os.getpid() and len(text) == 1_000_000
    with pytest.raises(ConfigError, match="^not so$"):
        in_child("working", work, "refuse")
    with pytest.raises(RuntimeError, match="(?s)working failed:.*KeyError: 'oh'"):
        in_child("working", work, "fail")
    with pytest.raises(RuntimeError, match="working: the process ended with exit code 7"):
        in_child("working", work, "die")
