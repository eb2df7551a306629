"""Branches in configs become commits; a resumed run keeps the commits of its checkpoint."""

import dataclasses
from types import SimpleNamespace

import pytest

from xlj.checkpoints import reading
from xlj.config import Config, ConfigError, Data, record
from xlj.config.task import Task
from xlj.io import hub
from xlj.training import revisions

NEW, OLD = "2" * 40, "1" * 40


@pytest.fixture(autouse=True)
def branches(monkeypatch):
    commits = {"main": NEW, "v2": "3" * 40}
    monkeypatch.setattr(hub, "_resolve", lambda place: commits[place.revision])


def config(revision):
    return Config(
        init_from=f"hf://o/model{revision}",
        data=Data(mono=(f"hf://datasets/o/n{revision}/{{language}}.txt", "local/{language}.txt")),
        task=Task(train=(f"hf://datasets/o/task{revision}/train.tsv",)),
    )


def test_every_url_of_a_config_gets_its_commit_and_nothing_else_changes():
    assert revisions.pin(config("@main")) == revisions.pin(config("")) == config(f"@{NEW}")
    pinned = config(f"@{NEW}")
    assert revisions.pin(pinned) == pinned
    assert revisions.pin(Config()) == Config()


def test_a_resumed_run_keeps_the_commits_of_its_checkpoint(monkeypatch, tmp_path):
    before = record(config(f"@{OLD}"))
    before["task"]["train"] = ["hf://datasets/o/other@main/train.tsv"]  # another source
    checkpoint = SimpleNamespace(config=lambda: before)
    monkeypatch.setattr(reading, "earliest", lambda workdir: checkpoint)
    expected = dataclasses.replace(config(f"@{OLD}"), task=config(f"@{NEW}").task)
    assert revisions.pin(config("@main"), tmp_path) == expected


def test_an_unreadable_repository_is_an_error_that_names_the_url(monkeypatch):
    def refuse(place):
        raise OSError("the hub has no dataset o/n")

    monkeypatch.setattr(hub, "_resolve", refuse)
    with pytest.raises(ConfigError, match=r"hf://o/model@main cannot be read \(the hub has no"):
        revisions.pin(config("@main"))
