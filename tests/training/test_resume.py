"""A killed run resumes and ends with the same bits as a run that was not interrupted.

The processes and signals are real.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from xla_flags import with_devices

from xlj.checkpoints import reading
from xlj.config import parse
from xlj.data.rows.preparing import prepare_rows
from xlj.io.own_process import CONTINUE
from xlj.training.schedule import Schedule

ROOT = Path(__file__).parents[2]
STEPS = 45


@pytest.fixture(scope="module")
def config_file(make_tiny, tmp_path_factory):
    """`tiny` as a config file on disk, with dropout and enough steps to be killed. A late phase
    changes alpha and switches on objectives with a queue, samples and labels."""
    tiny = make_tiny()
    prepare_rows(parse(tiny))
    tiny.train.steps, tiny.model.layers = STEPS, 1
    tiny.train.log_every = 4
    tiny.train.eval_every = 20
    tiny.train.checkpoint_every = 5
    tiny.train.keep_checkpoints = 3
    tiny.optimizer.average = 0.9
    tiny.evaluation.perplexity = True
    tiny.evaluation.retrieval.source = "held_out"
    path = tmp_path_factory.mktemp("recipe") / "recipe.py"
    path.write_text(
        "import json\n"
        "import ml_collections\n"
        "from xlj import config as schema\n\n\n"
        "def get_config():\n"
        "    config = schema.default()\n"
        f"    config.update(json.loads('''{tiny.to_json()}'''))\n"
        "    late = {'xlco': {'queue': 32, 'batch_size': 8}, 'btmlm': {'batch_size': 8}}\n"
        "    late |= {'trtd': {'batch_size': 8}, 'dwa': {'batch_size': 8}}\n"
        "    change = {'start_step': 23, 'data': {'alpha': 0.1}, 'objectives': late}\n"
        "    config.phases = ml_collections.ConfigDict({'late': change})\n"
        "    config.objectives.generator.layers = 1\n"
        "    config.model.language_embeddings = 'predicted'\n"
        "    return config\n",
        encoding="utf-8",
    )
    return path


@pytest.fixture(scope="module")
def whole(config_file):
    """The workdir of an uninterrupted run."""
    workdir = config_file.parent / "whole"
    finish(start(config_file, workdir))
    return workdir


def start(config_file, workdir, *arguments, devices=1, platform="cpu", flags=""):
    environment = dict(
        os.environ,
        XLA_FLAGS=f"{with_devices(devices)} {flags}",
        JAX_PLATFORMS=platform,
        PYTHONPATH=os.pathsep.join([str(ROOT), *sys.path]),
    )
    command = [sys.executable, "-m", "xlj.train", f"--config={config_file}"]
    command += [f"--workdir={workdir}", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finish(process, code=0):
    output = process.communicate(timeout=600)[0].decode()
    assert process.returncode == code, output
    return output


def lines(workdir):
    """Reads the metrics, except those that depend on the clock."""
    text = (workdir / "metrics.jsonl").read_text(encoding="utf-8")
    parsed = [json.loads(line) for line in text.splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in parsed]


def digests(workdir):
    return reading.find(workdir).meta["digests"]


def kill_when(process, workdir, after_step, delay):
    """Sends SIGKILL shortly after a checkpoint of `after_step` or later has appeared."""
    deadline = time.monotonic() + 300
    while max(reading.steps(workdir), default=-1) < after_step:
        assert process.poll() is None, process.communicate()[0].decode()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.extra
def test_a_run_killed_at_any_moment_ends_with_the_same_bits(config_file, whole, tmp_path):
    killed = tmp_path / "killed"
    saved_steps = []
    for after, delay in ((0, 0.0), (10, 0.03), (25, 0.11)):
        kill_when(start(config_file, killed), killed, after, delay)
        saved_steps.append(reading.find(killed).step)
    assert saved_steps[-1] < STEPS, "the run finished before it could be killed"
    finish(start(config_file, killed))
    assert digests(killed) == digests(whole)
    assert lines(killed) == lines(whole)
    steps = [line["step"] for line in lines(killed)]
    assert steps == sorted(set(steps)) and steps[0] == 0 and steps[-1] == STEPS


KILLED_IN_A_STEP = """
import os, sys
import jax
from jax.experimental import io_callback
from xlj import train
from xlj.objectives.contrast import loss

computed = loss.batch_gradients
calls = []

def gradients_then_killed(*arguments):
    gradients, results = computed(*arguments)
    return io_callback(killed, jax.eval_shape(lambda x: x, gradients), gradients), results

def killed(gradients):
    calls.append(1)
    if len(calls) == 8:
        os.kill(os.getpid(), 9)
    return gradients

loss.batch_gradients = gradients_then_killed
train.main(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_run_killed_between_the_passes_of_a_contrast_ends_with_the_same_bits(tmp_path):
    """The first pass computes the gradients at the vectors, the second those of the parameters."""
    flags = [f"--config={ROOT}/configs/sentences.py:tiny", "--config.train.steps=9"]
    flags += ["--config.train.checkpoint_every=3", "--config.train.log_every=3"]
    flags += [f"--config.data.cache={tmp_path}/rows", "--config.train.eval_rows=8"]
    flags += ["--config.objectives.contrast.negatives=2", "--config.objectives.contrast.guard=True"]
    sources = "phrasebook:{language},more@phrasebook:{language}"
    flags += [f"--config.data.examples={sources}", "--config.data.alpha=0.3"]
    environment = dict(
        os.environ, JAX_PLATFORMS="cpu", XLA_FLAGS=with_devices(1),
        PYTHONPATH=os.pathsep.join([str(ROOT), *sys.path]),
    )  # fmt: skip

    def run(program, workdir):
        command = [sys.executable, *program, *flags, f"--workdir={tmp_path}/{workdir}"]
        return subprocess.run(command, env=environment, capture_output=True, timeout=600)

    train = ["-m", "xlj.train"]
    assert run(train, "whole").returncode == 0
    killed = run(["-c", KILLED_IN_A_STEP], "killed")
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert 0 < reading.find(tmp_path / "killed").step < 9
    assert run(train, "killed").returncode == 0
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")
    assert lines(tmp_path / "killed") == lines(tmp_path / "whole")


@pytest.mark.slow
def test_a_finished_run_is_not_changed(tiny, store, tmp_path, capsys):
    from xlj.training import loop, start

    outcome = loop.train(start.prepare(parse(tiny), tmp_path, store))
    assert outcome.finished and outcome.operations == operations(parse(tiny), store)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    capsys.readouterr()
    assert loop.train(start.prepare(parse(tiny), tmp_path, store)) == outcome
    tiny.optimizer.learning_rate = 0.5
    tiny.train.allow_change = "optimizer.learning_rate"
    assert loop.train(start.prepare(parse(tiny), tmp_path, store)) == outcome
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before
    output = capsys.readouterr().out.splitlines()
    finished = (
        f"{tmp_path}/checkpoints/6: this run is finished (step 6); raise train.steps to continue it"
    )
    changed = "no effect: optimizer.learning_rate was 0.001, is now 0.5"
    assert output == [finished, finished, changed]


@pytest.mark.slow
def test_a_resumed_run_prints_changed_config_keys(tiny, store, trained, capsys, monkeypatch):
    from xlj.sharding import meshes
    from xlj.training import loop, start

    capsys.readouterr()
    tiny.train.steps, tiny.optimizer.warmup_steps, tiny.optimizer.b2 = 5, 2, 0.98
    tiny.optimizer.frozen, tiny.optimizer.schedule = "embeddings", "constant"
    names = ("schedule", "warmup_steps", "b2", "frozen")
    tiny.train.allow_change = ",".join(f"optimizer.{name}" for name in names)
    tiny.mesh.fsdp = 8
    monkeypatch.setattr(meshes, "_group", lambda device: device.id // 4)  # two hosts
    run = start.prepare(parse(tiny), trained, store)
    outcome = loop.train(run)
    assert outcome.operations == operations(parse(tiny), store)
    tokens = Schedule(parse(tiny), store).tokens(0, 5)
    assert capsys.readouterr().out.splitlines() == [
        "resuming: optimizer.schedule was 'linear', is now 'constant'",
        "resuming: optimizer.warmup_steps was 0, is now 2",
        "resuming: optimizer.b2 was 0.999, is now 0.98",
        "resuming: optimizer.frozen was [], is now ['embeddings']",
        "resuming: train.steps was 4, is now 5",
        "resuming: mesh.fsdp was 1, is now 8",
        "slow: mesh.fsdp=8 gathers the parameters of every layer across hosts or TPU slices; "
        "choose a value that divides the number of devices of each host or slice",
        *"\n".join(run.attention).split("\n"),
        f"steps of the run: 5, about {tokens:,.0f} tokens",
        "passes over the rows: text 0.02, pairs 0.11",
        f"operations of the run: {outcome.operations}",
        "",
    ]


def operations(config, store, steps=None):
    """Returns the operations of the first steps of a run, or of all steps."""
    from xlj.data.rows.batches import Batches
    from xlj.training.run_flops import RunFlops

    batches = Batches(store, config)
    counts = RunFlops(config, batches)
    return counts.until(config.train.steps if steps is None else steps)


def probe(signal_at=-1, signals=(signal.SIGTERM,)):
    """Returns a probe that checks for a stop before each of two batches. Call number `signal_at`
    sends the signals to this process before the second check."""
    calls = iter(range(9))

    def measure(state, check):
        check()
        if next(calls) == signal_at:
            for number in signals:
                os.kill(os.getpid(), number)
        check()
        mean = np.mean(state.params["embeddings"]["word"])
        return {"eval/x/mean": float(mean), "eval/x/score": -abs(int(state.progress.step) - 3)}

    return measure


@pytest.mark.slow
@pytest.mark.parametrize("signal_at, step", [(0, 0), (1, 3), (2, 6)])
def test_an_interrupted_evaluation_is_repeated_on_resume(
    tiny, store, tmp_path, signal_at, step, devices
):
    from xlj.training import loop, start

    devices(1)
    tiny.objectives.tlm.batch_size, tiny.model.layers = 0, 1
    tiny.train.log_every, tiny.train.checkpoint_every, tiny.train.keep_checkpoints = 3, 2, 1
    tiny.train.best_metric = "eval/x/score"
    config = parse(tiny)

    def train(workdir, *probes):
        return loop.train(start.prepare(config, workdir, store), probes)

    train(tmp_path / "whole", probe())
    stopped = tmp_path / "stopped"
    outcome = train(stopped, probe(signal_at))
    assert (outcome.step, outcome.finished) == (step, False)
    assert outcome.operations == operations(config, store, step)
    # Nothing is saved before the first evaluation.
    assert reading.steps(stopped)[-1:] == [step][: step > 0]
    assert [line["step"] for line in lines(stopped)] == list(range(0, step, 3))
    again = train(stopped, probe(signal_at=0))  # interrupted again, at the same step
    assert (again.step, again.finished) == (step, False)
    assert train(stopped, probe()).finished
    assert lines(stopped) == lines(tmp_path / "whole")
    assert digests(stopped)["params"] == digests(tmp_path / "whole")["params"]
    assert digests(stopped)["optimizer"] == digests(tmp_path / "whole")["optimizer"]
    # Step 3 is the best one, also if it was saved before it was evaluated.
    assert [reading.best(workdir).step for workdir in (stopped, tmp_path / "whole")] == [3, 3]
    before = (stopped / "metrics.jsonl").stat().st_mtime_ns
    assert train(stopped, probe()).finished
    assert (stopped / "metrics.jsonl").stat().st_mtime_ns == before


@pytest.mark.slow
def test_ctrl_c_saves_and_a_second_one_names_the_step_to_resume_from(
    tiny, store, tmp_path, capfd, devices
):
    from xlj.training import loop, start

    devices(1)
    tiny.objectives.tlm.batch_size, tiny.model.layers, tiny.train.eval_rows = 0, 1, 0
    tiny.train.log_every, tiny.train.checkpoint_every, tiny.train.keep_checkpoints = 3, 2, 1
    config, before = parse(tiny), signal.getsignal(signal.SIGINT)

    def train(*signals):
        return loop.train(start.prepare(config, tmp_path, store), [probe(1, signals)])

    with pytest.raises(KeyboardInterrupt, match="without saving; .* resumes from step 2"):
        train(signal.SIGINT, signal.SIGINT)
    assert reading.steps(tmp_path) == [2] and "Ctrl-C again stops without" in capfd.readouterr().err
    with pytest.raises(KeyboardInterrupt, match="saved step 6; the same command resumes from it"):
        train(signal.SIGINT)  # the run evaluates step 3, then step 6
    assert reading.steps(tmp_path) == [6] and lines(tmp_path)[-1]["step"] == 3
    assert signal.getsignal(signal.SIGINT) is before
    assert train().finished


@pytest.mark.slow
def test_a_run_with_a_duration_in_passes_ends_after_these_passes(tiny, store, trained):
    """The run is then finished, and the config in its workdir has steps instead of passes."""
    from xlj.training import loop, start

    tiny.train.steps = "0.02ep"
    config = parse(tiny)
    outcome = loop.train(start.prepare(config, trained, store))
    rows = sum(task.train.rows for task in store.tasks("text"))
    last = -(-rows // 50 // 16)
    assert outcome.finished and outcome.step == last > 4
    assert json.loads((trained / "config.json").read_text())["train"]["steps"] == last
    assert loop.train(start.prepare(config, trained, store)) == outcome


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_starts_over(tiny, store, tmp_path):
    from xlj.training import loop, start

    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "x": 1}\n{"step": 4, "x": 2}\n')
    loop.train(start.prepare(parse(tiny), tmp_path, store))
    assert [line["step"] for line in lines(tmp_path)] == [0, 2, 3, 4, 6]


@pytest.mark.slow
def test_sigterm_saves_and_the_run_resumes(config_file, whole, tmp_path):
    stopped = tmp_path / "stopped"
    process = start(config_file, stopped)
    deadline = time.monotonic() + 300
    while not reading.steps(stopped):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    output = finish(process, CONTINUE)
    assert "the same command resumes from it" in output
    assert 0 < reading.find(stopped).step < STEPS
    finish(start(config_file, stopped))
    assert digests(stopped) == digests(whole)
    assert lines(stopped) == lines(whole)


@pytest.mark.slow
@pytest.mark.parametrize("sent, code", [(signal.SIGTERM, CONTINUE), (signal.SIGINT, 130)])
def test_a_signal_while_xla_compiles_ends_the_run_at_once(
    config_file, store, tmp_path, monkeypatch, sent, code
):
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "false")
    process, output = start(config_file, tmp_path / "stopped"), b""
    while b"compiling the train step" not in output:
        output += os.read(process.stdout.fileno(), 4096)
        assert process.poll() is None, output.decode()
    process.send_signal(sent)
    begin = time.monotonic()
    assert "starts from the beginning" in finish(process, code)
    assert time.monotonic() - begin < 5
    assert not reading.steps(tmp_path / "stopped")


def test_a_resume_with_another_seed_objective_or_model_names_the_changed_key(tiny, store, trained):
    from xlj.training import loop, start

    tiny.train.seed = 5
    with pytest.raises(reading.CheckpointError, match=r"train\.seed: 0 -> 5"):
        loop.train(start.prepare(parse(tiny), trained, store))
    tiny.train.seed, tiny.objectives.masking.rate = 0, 0.3
    with pytest.raises(reading.CheckpointError, match=r"objectives\.masking\.rate: .* -> 0\.3"):
        loop.train(start.prepare(parse(tiny), trained, store))
    tiny.objectives.masking.rate = 0.15
    tiny.model.heads = 4  # changes what the weights compute, but no shape
    with pytest.raises(reading.CheckpointError, match=r"model\.heads: 2 -> 4"):
        loop.train(start.prepare(parse(tiny), trained, store))
    tiny.model.hidden = 64
    with pytest.raises(reading.CheckpointError, match=r"model\.hidden: 32 -> 64"):
        loop.train(start.prepare(parse(tiny), trained, store))
