"""A run of several processes has the same batches, masks and losses as a run of one process."""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from test_resume import ROOT, finish, lines, start
from xla_flags import with_devices

from xlj import phrasebook
from xlj.checkpoints import reading
from xlj.config import parse
from xlj.data.rows.preparing import prepare_rows
from xlj.io.own_process import CONTINUE


def start_distributed(config_file, workdir, index, port, *arguments, processes=2, devices=2):
    """Starts process `index` of several as Slurm would, each with some fake devices."""
    environment = dict(
        os.environ,
        XLA_FLAGS=with_devices(devices),
        PYTHONPATH=str(ROOT),
        JAX_COORDINATOR_ADDRESS=f"127.0.0.1:{port}",
        SLURM_JOB_ID="1",
        SLURM_STEP_NODELIST="localhost",
        SLURM_NTASKS=str(processes),
        SLURM_PROCID=str(index),
        SLURM_LOCALID=str(index),
    )
    command = [sys.executable, "-m", "xlj.train", f"--config={config_file}"]
    command += [f"--workdir={workdir}", "--distributed", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _few_pairs(pair):
    return itertools.islice(phrasebook.pair_lines(pair), 20)


@pytest.fixture
def recipe(tmp_path):
    """A function that writes a config as a config file."""

    def write(config):
        path = tmp_path / "recipe.py"
        path.write_text(
            "import json\nfrom xlj import config as schema\n\n\n"
            "def get_config():\n"
            "    config = schema.default()\n"
            f"    config.update(json.loads('''{config.to_json()}'''))\n"
            "    return config\n",
            encoding="utf-8",
        )
        return path

    return write


@pytest.fixture
def config_file(tiny, tmp_path, recipe):
    """`tiny` as a config file, with sharded parameters and all evaluations."""
    tiny.mesh.fsdp = 2
    tiny.evaluation.retrieval.source = "held_out"
    tiny.evaluation.alignment.source, gold = f"{tmp_path}/{{pair}}.tsv", "0-0 1-1 2-2"
    for pair in ("en-de", "en-sw"):
        lines = [f"{first}\t{second}\t{gold}\n" for first, second in _few_pairs(pair)]
        (tmp_path / f"{pair}.tsv").write_text("".join(lines), encoding="utf-8")
    return recipe(tiny)


@pytest.mark.slow
def test_two_processes_train_as_one(store, config_file, tmp_path: Path):
    finish(start(config_file, tmp_path / "one", devices=4))
    port = free_port()
    both = [start_distributed(config_file, tmp_path / "two", i, port) for i in (0, 1)]
    outputs = [finish(process) for process in both]
    assert ["operations of the run" in output for output in outputs] == [True, False]
    assert "mesh.fsdp" not in "".join(outputs)  # no warning, since gathers stay within each host
    for a, b in zip(lines(tmp_path / "two"), lines(tmp_path / "one"), strict=True):
        assert a.keys() == b.keys()
        np.testing.assert_allclose(list(a.values()), list(b.values()), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_several_processes_refuse_to_build_rows(config_file, tmp_path, tiny):
    text = config_file.read_text(encoding="utf-8").replace(tiny.data.cache, str(tmp_path / "none"))
    config_file.write_text(text, encoding="utf-8")
    port = free_port()
    both = [start_distributed(config_file, tmp_path / "two", i, port) for i in (0, 1)]
    outputs = [process.communicate(timeout=300)[0].decode() for process in both]
    assert all(process.returncode for process in both)
    assert "python -m xlj.prepare" in outputs[0]


def start_local(config_file, workdir, processes):
    """Starts processes of one fake device each, as launch/local.py does."""
    command = [sys.executable, "launch/local.py", "-n", str(processes), "--"]
    command += [sys.executable, "-m", "xlj.train", f"--config={config_file}"]
    return subprocess.Popen(
        [*command, f"--workdir={workdir}"],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": with_devices(1), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def children(pid):
    return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.extra
def test_after_a_kill_of_one_of_four_processes_two_processes_resume(store, config_file, tmp_path):
    """Each survivor names the lost process and ends within a minute; the next run has two
    processes."""
    workdir = tmp_path / "four"
    long = config_file.read_text("utf-8").replace(
        "    return",
        "    config.train.steps, config.model.layers = 98765, 1\n"
        "    config.evaluation = schema.default().evaluation\n"  # saves compilation time
        "    return",
    )
    (tmp_path / "long.py").write_text(long, encoding="utf-8")
    four, begin = start_local(tmp_path / "long.py", workdir, 4), time.monotonic()
    while not (workdir / "checkpoints/2").exists() and four.poll() is None:
        assert time.monotonic() - begin < 300
        time.sleep(0.2)
    (child,) = children(children(four.pid)[2])
    os.kill(child, signal.SIGKILL)
    begin = time.monotonic()
    output = four.communicate(timeout=120)[0]
    assert four.returncode == CONTINUE and time.monotonic() - begin < 60, output
    for process in range(4):
        assert f"{process}: error: process 2 of 4" in output
    assert output.count("operations of the run") == 1
    step = max(int(folder.name) for folder in (workdir / "checkpoints").iterdir())
    config_file.write_text(long.replace("98765", str(step + 2)), encoding="utf-8")
    two = start_local(config_file, workdir, 2)
    output = two.communicate(timeout=300)[0]
    assert two.returncode == 0 and "1: operations" not in output, output
    assert lines(workdir)[-1]["step"] == step + 2
    last = (workdir / "metrics.jsonl").read_text("utf-8").splitlines()[-1]
    assert '"time/slowest_process"' in last and (workdir / "hosts.jsonl").exists()


def kill_all_when(processes, workdir, after_step):
    """Sends SIGKILL to all processes once a checkpoint of `after_step` or later has appeared."""
    deadline = time.monotonic() + 300
    while max(reading.steps(workdir), default=-1) < after_step:
        for process in processes:
            assert process.poll() is None, process.communicate()[0].decode()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


@pytest.mark.slow
def test_a_run_killed_on_three_processes_resumes_on_one(tiny, tmp_path, recipe):
    """The latest checkpoint is damaged before the run resumes."""
    tiny.objectives.mmlm.batch_size, tiny.objectives.tlm.batch_size = 24, 0
    tiny.train.steps, tiny.train.checkpoint_every, tiny.train.keep_checkpoints = 40, 2, 3
    tiny.train.eval_every, tiny.train.log_every, tiny.model.layers = 40, 10, 1
    tiny.train.damaged_checkpoint = "before"
    prepare_rows(parse(tiny))
    config_file, resumed, port = recipe(tiny), tmp_path / "resumed", free_port()
    processes = [
        start_distributed(config_file, resumed, index, port, processes=3, devices=1)
        for index in range(3)
    ]
    kill_all_when(processes, resumed, 4)
    latest = resumed / "checkpoints" / str(reading.steps(resumed)[-1])
    assert int(latest.name) < 40, "the run finished before it could be killed"
    shutil.rmtree(latest / "optimizer")
    finish(start(config_file, resumed))
    assert (resumed / "damaged" / latest.name).is_dir()
    finish(start(config_file, tmp_path / "whole"))
    for a, b in zip(lines(resumed), lines(tmp_path / "whole"), strict=True):
        assert a.keys() == b.keys()
        np.testing.assert_allclose(list(a.values()), list(b.values()), rtol=2e-3, atol=1e-4)
