"""Broken JSON in any input file causes an error that names the file or reports damage."""

import json
from pathlib import Path

import numpy as np
import pytest

from xlj.checkpoints import metrics, workdir
from xlj.config import ConfigError
from xlj.data.labelled import squad, tables
from xlj.data.rows import shards
from xlj.data.rows.store import RowStore, RowStoreError
from xlj.evaluation import prediction_files
from xlj.interop import folder, tokenizer_files
from xlj.tools.reporting import runs

BROKEN = {
    "deep": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep and open": b'{"a": ' * 100_000,
    "long number": b'{"step": ' + b"9" * 5_000 + b"}",
    "no UTF-8": b'{"a": "\xff"}',
    "cut": b'{"a": ',
    "empty": b"",
}
NOT_FINITE = {"infinity": b'{"step": Infinity}', "large": b'{"step": -1e999}', "nan": b"[NaN]"}
with_broken_json = pytest.mark.parametrize("content", BROKEN.values(), ids=list(BROKEN))
with_broken_json_or_not_finite = pytest.mark.parametrize(
    "content", [*BROKEN.values(), *NOT_FINITE.values()], ids=[*BROKEN, *NOT_FINITE]
)


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@with_broken_json_or_not_finite
@pytest.mark.parametrize(
    "read",
    [squad.read, prediction_files.questions, prediction_files.answers],
)
def test_errors_name_a_file_of_questions_or_answers(tmp_path, content, read):
    with pytest.raises(ConfigError, match=r"^\S*/a\.json:"):
        read(write(tmp_path / "a.json", content))


@with_broken_json_or_not_finite
def test_errors_name_a_line_of_a_jsonl_file(tmp_path, content):
    path = write(tmp_path / "a.jsonl", b'{"text": "x", "label": "y"}\n' + (content or b"{") + b"\n")
    with pytest.raises(ConfigError, match=r"^\S*/a\.jsonl:2: "):
        tables.read(path, ("text", "label"))


@with_broken_json_or_not_finite
@pytest.mark.parametrize("name", [folder.CONFIG, folder.INDEX])
def test_errors_name_a_file_of_a_hugging_face_folder(tmp_path, content, name):
    write(tmp_path / folder.CONFIG, b"{}")
    write(tmp_path / name, content)
    with pytest.raises(ConfigError, match=rf"^\S*/{name}:"):
        folder.open_folder(tmp_path)


@with_broken_json_or_not_finite
@pytest.mark.parametrize("name", ["tokenizer_config.json", "added_tokens.json"])
def test_errors_name_a_config_file_of_a_tokenizer(tmp_path, content, name):
    write(tmp_path / "vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    write(tmp_path / name, content)
    with pytest.raises(ConfigError, match=name):
        tokenizer_files.read(tmp_path)


@with_broken_json
def test_broken_lines_of_metrics_are_errors_except_an_incomplete_last_line(tmp_path, content):
    path = write(tmp_path / metrics.FILE, b'{"step": 1}\n' + (content or b"{") + b"\n")
    with pytest.raises(ConfigError, match=r"metrics\.jsonl:2 is not a line of metrics"):
        metrics.read(tmp_path)
    path.write_bytes(b'{"step": 1}\n' + content)  # like an interrupted write
    assert metrics.read(tmp_path) == [{"step": 1}]
    path.write_text('{"step": 1, "loss": NaN, "norm": Infinity}\n')
    assert metrics.read(tmp_path)[0]["norm"] == float("inf")


@pytest.mark.parametrize(
    "content", [*BROKEN.values(), b'{"step": Infinity}', b"[]"], ids=[*BROKEN, "infinity", "list"]
)
def test_a_damaged_run_json_is_reported(tmp_path, content):
    known = {"languages": [], "seed": 0, "dev": {}, "test": {}}
    if b"Infinity" in content:
        content = json.dumps(known | {"step": float("inf")}).encode()
    write(tmp_path / workdir.RUN, content)
    with pytest.raises(ConfigError, match=r"run\.json is damaged"):
        workdir.finished_run(tmp_path)


@with_broken_json
@pytest.mark.parametrize("name", ["config.json", "results.json", "sweep.json"])
def test_reports_note_damaged_files(tmp_path, content, name):
    write(tmp_path / name, content)
    (note,) = [note for note in runs.read(tmp_path, "run").notes if "damaged" in note]
    assert note.startswith(f"{name} is damaged: ")


@pytest.mark.parametrize(
    "content", [*BROKEN.values(), b'{"layer": Infinity}'], ids=[*BROKEN, "infinity"]
)
def test_reports_note_damaged_lines_of_scores_by_layer(tmp_path, content):
    write(tmp_path / "a.jsonl", b'{"layer": 1, "aer": 0.5}\n' + (content or b"{") + b"\n")
    run = runs.read(tmp_path, "run")
    assert run.layers == {"a aer": {1: 0.5}}
    assert run.notes[-1] == "a.jsonl:2: the line has no scores of a layer"


@with_broken_json
def test_a_damaged_manifest_of_rows_is_reported(tmp_path, content):
    write(tmp_path / "manifest.json", content)
    with pytest.raises(RowStoreError, match=r"manifest\.json is damaged"):
        RowStore(tmp_path)


@with_broken_json
def test_a_unit_with_a_damaged_note_is_built_again(tmp_path, content):
    task_shards = shards.Shards(tmp_path / "text.en", "text", 1, 16, "<u2")
    counts, rows = shards.Counts(), [{"tokens": np.zeros((n, 16), np.uint16)} for n in (1, 0)]
    counts.train.update(rows=1, tokens=16, examples=1, sentences=1)
    with task_shards.writing_unit(0, counts) as add:
        add(*rows)
    note = task_shards.unit_file(0).with_suffix(".json")
    good = note.read_bytes()
    write(note, content)
    with pytest.raises(RuntimeError, match="00000000.rows is damaged; run the command again"):
        task_shards.finish(0)
    assert not task_shards.has_unit(0) and not task_shards.has_shard(0)
    write(note, good)
    task_shards.finish(0)
    assert task_shards.has_shard(0)
    write(task_shards.folder / "00000.json", content)
    assert not task_shards.has_shard(0)
