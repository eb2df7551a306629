"""Several processes are one run: the same batches, masks and losses."""

import itertools
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_resume import ROOT, finish, lines, start

from xlj import phrasebook


def start_distributed(config_file, workdir, index, port):
    """Process `index` of two, as Slurm would start it, with two fake devices each."""
    environment = dict(
        os.environ,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
        PYTHONPATH=str(ROOT),
        JAX_COORDINATOR_ADDRESS=f"127.0.0.1:{port}",
        SLURM_JOB_ID="1",
        SLURM_STEP_NODELIST="localhost",
        SLURM_NTASKS="2",
        SLURM_PROCID=str(index),
        SLURM_LOCALID=str(index),
    )
    command = [sys.executable, "-m", "xlj.train", f"--config={config_file}"]
    command += [f"--workdir={workdir}", "--distributed"]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def _few_pairs(pair):
    return itertools.islice(phrasebook.pair_lines(pair), 20)


@pytest.fixture
def config_file(tiny, tmp_path):
    """`tiny` as a config file, sharded, with all that is measured beside its losses."""
    tiny.mesh.fsdp = 2
    tiny.evaluation.retrieval.source = "held_out"
    tiny.evaluation.alignment.source, gold = f"{tmp_path}/{{pair}}.tsv", "0-0 1-1 2-2"
    for pair in ("en-de", "en-sw"):
        lines = [f"{first}\t{second}\t{gold}\n" for first, second in _few_pairs(pair)]
        (tmp_path / f"{pair}.tsv").write_text("".join(lines), encoding="utf-8")
    path = tmp_path / "recipe.py"
    path.write_text(
        "import json\nfrom xlj import config as schema\n\n\n"
        "def get_config():\n"
        "    config = schema.default()\n"
        f"    config.update(json.loads('''{tiny.to_json()}'''))\n"
        "    return config\n",
        encoding="utf-8",
    )
    return path


@pytest.mark.slow
def test_two_processes_train_as_one(store, config_file, tmp_path: Path):
    finish(start(config_file, tmp_path / "one", devices=4))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    both = [start_distributed(config_file, tmp_path / "two", i, port) for i in (0, 1)]
    outputs = [finish(process) for process in both]
    assert ["operations of the run" in output for output in outputs] == [True, False]
    assert "mesh.fsdp" not in "".join(outputs)  # it is within each host
    for a, b in zip(lines(tmp_path / "two"), lines(tmp_path / "one"), strict=True):
        assert a.keys() == b.keys()
        np.testing.assert_allclose(list(a.values()), list(b.values()), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_several_processes_refuse_to_make_rows(config_file, tmp_path, tiny):
    text = config_file.read_text(encoding="utf-8").replace(tiny.data.cache, str(tmp_path / "none"))
    config_file.write_text(text, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    both = [start_distributed(config_file, tmp_path / "two", i, port) for i in (0, 1)]
    outputs = [process.communicate(timeout=300)[0].decode() for process in both]
    assert all(process.returncode for process in both)
    assert "python -m xlj.prepare" in outputs[0]
