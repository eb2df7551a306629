"""Training resumes from a checkpoint whose config has old keys, and all commands read it.

Commit 82c0b8b wrote `checkpoint_1_generator.tar.xz`. At that commit, the section `model` had the
keys of the generator. The run is that of `make_formats.py`, except for these settings: 8 rows each
of MRTD and TRTD, `generator_layers` 1, `generator_embeddings` `generator_only`, sentence pairs made
of the same lines, and a vocabulary of 24 pieces. The archive also contains the rows of the run.
"""

import json
import re
import shutil

import jax
import numpy as np
import pytest
from test_formats_last import HERE, unpack

from xlj import align, convert, embed, finetune, mine, report, retrieve, train
from xlj.checkpoints import reading
from xlj.config import renamed

OLD = HERE / "checkpoint_1_generator.tar.xz"
RECIPE = """
from xlj.config import default


def get_config(variant=""):
    config = default()
    model = config.model
    model.layers, model.heads, model.hidden, model.intermediate = 1, 1, 4, 4
    model.positions, model.generator_layers = 26, 1
    config.objectives.mmlm.batch_rows = 0
    config.objectives.mrtd.batch_rows = config.objectives.trtd.batch_rows = 8
    config.train.steps, config.train.eval_rows, config.train.log_every = 3, 0, 100
    config.optimizer.schedule = "constant"
    return config
"""


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A folder with the workdir `run`, its rows, a recipe that sets an old key, and text files."""
    folder = tmp_path_factory.mktemp("old")
    content, expected = unpack(OLD, folder)
    (folder / "run" / "checkpoints").mkdir(parents=True)
    content.rename(folder / "run" / "checkpoints" / "2")
    (folder / "rows" / "name").write_text(expected["rows"])
    (folder / "recipe.py").write_text(RECIPE)
    lines = ["the cat sees us.", "the dog has it."]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line}\n" for line in lines))
    labelled = "".join(f"{line}\t{label}\n" for line in lines for label in "ab")
    (folder / "labelled.tsv").write_text(labelled)
    config = {"config": reading.find(folder / "run").meta["config"]}
    for name, record in (("recorded", config["config"]), ("swept", config)):
        (folder / name).mkdir()
        file = "config.json" if name == "recorded" else "sweep.json"
        (folder / name / file).write_text(json.dumps(record))
    return folder


@pytest.fixture(autouse=True)
def one_device(monkeypatch):
    devices = jax.devices()[:1]
    monkeypatch.setattr(jax, "devices", lambda *_: devices)
    renamed._print_once.cache_clear()


def workdir(old, folder):
    """A copy of the old workdir."""
    shutil.copytree(old / "run", folder / "run")
    return folder / "run"


def flags_of(old, run, *keys, old_keys=True):
    keys = [*keys, "--config.model.generator_embeddings=generator_only"] if old_keys else keys
    rows = f"--config.data.rows={old / 'rows' / (old / 'rows' / 'name').read_text()}"
    return [f"--config={old / 'recipe.py'}", f"--workdir={run}", rows, *keys]


def test_the_checkpoint_is_intact_and_its_old_keys_are_translated(old):
    checkpoint = reading.find(old / "run")
    reading.verify(checkpoint)
    _, expected = unpack(OLD, old / "again")
    assert checkpoint.digest() == expected["digest"] and checkpoint.step == 2
    # The digest is a hash of the config as it was written, with the old key.
    assert checkpoint.meta["config"]["model"]["generator_layers"] == 1
    config = checkpoint.config()
    assert "generator_layers" not in config["model"]
    for name in ("mrtd", "trtd"):
        assert config["objectives"][name]["generator_layers"] == 1
        assert config["objectives"][name]["generator_embeddings"] == "generator_only"
    assert checkpoint.model().layers == 1 and OLD.stat().st_size < 26_000


@pytest.mark.slow
def test_training_resumes_with_old_keys_in_the_recipe_and_on_the_command_line(
    old, tmp_path, capsys
):
    run = workdir(old, tmp_path)
    assert train.main(flags_of(old, run)) == 0
    printed = capsys.readouterr()
    new = "objectives.mrtd.{0} and objectives.trtd.{0}"
    for name, value in (("generator_layers", 1), ("generator_embeddings", "generator_only")):
        line = f"model.{name}={value} is read as {new.format(name)}"
        assert printed.err.count(f"\n{line}\n") + printed.err.startswith(line) == 1
        assert f"in a recorded config, {line}\n" in printed.err
    assert "resuming: train.steps was 2, is now 3\n" in printed.out
    assert not re.search("generator_.* was ", printed.out)
    assert reading.find(run).step == 3
    recorded = reading.find(run).meta["config"]
    assert recorded == json.loads((run / "config.json").read_text())
    assert "generator_layers" not in recorded["model"]
    assert recorded["objectives"]["trtd"]["generator_embeddings"] == "generator_only"


@pytest.mark.parametrize("allow", ["", "model.generator_layers"])
def test_resuming_with_another_generator_is_refused(allow, old, tmp_path, capsys):
    keys = ["--config.model.generator_layers=2", f"--config.train.allow_change={allow}"]
    assert train.main(flags_of(old, workdir(old, tmp_path), *keys)) == 2
    printed = capsys.readouterr().err
    key = "objectives.{}.generator_layers: 1 -> 2"
    assert f"{key.format('mrtd')}; {key.format('trtd')}" in printed
    assert "To resume with these differences" not in printed and "init_from=" in printed


@pytest.mark.slow
def test_a_new_run_starts_from_the_checkpoint_with_and_without_a_generator(old, tmp_path, capsys):
    start = [f"--config.init_from={old / 'run'}", "--config.train.steps=1"]
    argv = flags_of(old, tmp_path / "other", *start, "--config.model.generator_layers=2")
    assert train.main(argv) == 0
    assert "init_from: newly initialised: generator/layers/" in capsys.readouterr().out
    off = ["--config.objectives.mrtd.batch_rows=0", "--config.objectives.trtd.batch_rows=0"]
    on = ["--config.objectives.mmlm.batch_rows=8", "--config.model.generator_layers=4"]
    argv = flags_of(old, tmp_path / "none", *start, *off, *on, old_keys=False)
    assert train.main(argv) == 0
    assert "not used: " in capsys.readouterr().out


@pytest.mark.slow
def test_all_commands_read_the_checkpoint(old, tmp_path, capsys):
    text, pairs, vectors = old / "text.txt", old / "pairs.tsv", tmp_path / "vectors.npy"
    checkpoint, out = f"--checkpoint={old / 'run'}", tmp_path / "folder"
    page = tmp_path / "report.html"
    sides = [f"--source={text}", f"--target={text}"]
    for main, argv in (
        (embed.main, [checkpoint, f"--input={text}", f"--output={vectors}"]),
        (align.main, [checkpoint, f"--input={pairs}", f"--output={tmp_path / 'links.txt'}"]),
        (retrieve.main, [checkpoint, *sides]),
        (mine.main, [checkpoint, *sides, "--threshold=0", f"--output={tmp_path / 'mined.tsv'}"]),
        (convert.main, ["export", checkpoint, f"--output={out}"]),
        (report.main, [str(old / "recorded"), str(old / "swept"), f"--output={page}"]),
    ):
        assert main(argv) == 0, capsys.readouterr()
    assert np.load(vectors).shape == (2, 4)
    assert len((tmp_path / "links.txt").read_text().splitlines()) == 2
    assert page.is_file()
    assert (out / "config.json").is_file()
    # Training can also start from the exported folder.
    start = [f"--config.init_from={out}", "--config.train.steps=1"]
    assert train.main(flags_of(old, tmp_path / "run", *start)) == 0


def test_the_checkpoint_can_be_fine_tuned(old, tmp_path, capsys):
    table = old / "labelled.tsv"
    recipe = tmp_path / "task.py"
    recipe.write_text(
        "from xlj.config import finetuning\n\n\ndef get_config(variant=''):\n"
        "    config = finetuning.default()\n"
        f"    config.task.train = config.task.test = '{table}'\n"
        "    config.task.select, config.task.length = 'last', 16\n"
        "    config.train.epochs, config.train.batch_rows = 1.0, 4\n"
        f"    config.cache = '{tmp_path / 'cache'}'\n"
        "    return config\n"
    )
    start, run = f"--config.init_from={old / 'run'}", f"--workdir={tmp_path / 'tuned'}"
    assert finetune.main([f"--config={recipe}", start, run]) == 0, capsys.readouterr()
