"""Starters in launch/: dry runs with programs that only note how they are called."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from xlj import bench
from xlj.io.exit_codes import CONTINUE

LAUNCH = Path(__file__).parents[1] / "launch"
FLAGS = ["--config=c.py", "--workdir=/r/a b", "--config.data.mono=/t/{language}.txt"]


@pytest.fixture
def clone(tmp_path):
    """A folder that is called as a clone is: launch/, and an environment that does nothing."""
    (tmp_path / "launch").symlink_to(LAUNCH)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").write_text("")
    return tmp_path


@pytest.fixture
def call(clone):
    """Calls a starter in the clone; returns its exit code, and the calls that it made."""

    def call(script, *flags, programs, **variables):
        log, folder = clone / "log", clone / "programs"
        folder.mkdir()
        for name, does in programs.items():
            program = folder / name
            note = "import json, os, sys; f = open(os.environ['LOG'], 'a')"
            note += "; print(json.dumps([sys.argv[1], *sys.argv[2:]]), file=f)"
            program.write_text(
                f'#!/usr/bin/env bash\n"{sys.executable}" -c "{note}" {name} "$@"\n{does}\n'
            )
            program.chmod(0o755)
        log.write_text("")
        done = subprocess.run(
            ["launch/" + script, *flags],
            cwd=clone,
            env={
                **os.environ,
                "PATH": f"{folder}:{os.environ['PATH']}",
                "LOG": str(log),
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done, [json.loads(line) for line in log.read_text().splitlines()]

    return call


@pytest.mark.parametrize("script", sorted(LAUNCH.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_bash(script):
    subprocess.run(["bash", "-n", script], check=True)


def sbatch_options(script):
    return dict(re.findall(r"^#SBATCH --([\w-]+)=?(\S*)", (LAUNCH / script).read_text(), re.M))


def test_slurm_makes_rows_on_cpus_and_trains_when_they_are_there(call):
    done, calls = call("slurm.sh", *FLAGS, programs={"sbatch": "echo '12;cluster'"}, NAME="big")
    assert done.returncode == 0, done.stderr
    rows, train = calls
    assert rows[-3:] == ["launch/slurm_rows.sh", FLAGS[0], FLAGS[2]]  # without --workdir
    assert train[-4:] == ["launch/slurm_train.sh", *FLAGS]
    assert "--dependency=afterok:12,singleton" in train and "--job-name=big" in train
    assert not {"gres", "gpus", "gpus-per-task"} & sbatch_options("slurm_rows.sh").keys()
    options = sbatch_options("slurm_train.sh")
    assert options["gres"] == "gpu:8" and "requeue" in options
    assert options["signal"].startswith("TERM@")


def test_slurm_submits_no_training_without_rows_to_come(call):
    done, calls = call("slurm.sh", *FLAGS, programs={"sbatch": "exit 1"})
    assert done.returncode == 1 and len(calls) == 1


@pytest.mark.parametrize(
    ("code", "restarts", "again"),
    [(0, 0, False), (2, 0, False), (1, 0, False), (CONTINUE, 3, True), (137, 0, True)]
    + [(CONTINUE, 100, False)],
)
def test_slurm_requeues_interrupted_runs(call, clone, code, restarts, again):
    done, calls = call(
        "slurm_train.sh",
        *FLAGS,
        programs={
            "srun": f'echo "$XLA_FLAGS $JAX_COMPILATION_CACHE_DIR"; exit {code}',
            "scontrol": "",
        },
        SLURM_JOB_ID="34",
        SLURM_RESTART_COUNT=str(restarts),
        JAX_COMPILATION_CACHE_DIR="",
    )
    assert done.returncode == code
    assert calls[0] == ["srun", "python", "-m", "xlj.train", "--distributed", *FLAGS]
    assert calls[1:] == ([["scontrol", "requeue", "34"]] if again else [])
    assert "latency_hiding" in done.stdout and f" {clone}/build/compiled\n" in done.stdout


def test_the_measurements_of_a_gpu_are_such_as_bench_takes(call, tmp_path, monkeypatch):
    writes = 'for x in "$@"; do [[ $x != --table=* ]] || echo a table > "${x#--table=}"; done'
    done, calls = call("bench_gpu.sh", programs={"python": writes}, OUT=str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("a table") == len(calls) == 6
    monkeypatch.chdir(tmp_path)  # where recipes are found by their names
    for program, *flags in calls:
        assert [program, *flags[:2]] == ["python", "-m", "xlj.bench"]
        assert bench.main([*flags[2:], "--check"]) == 0


WRITES = 'for x in "$@"; do [[ $x != --json=* ]] || echo "{}" > "${x#--json=}"; done; '


def test_the_check_of_a_gpu_lists_what_failed_and_what_was_not_reached(call, tmp_path, monkeypatch):
    fails = WRITES + "case $* in *test_fused_losses*) exit 1 ;; *--what=peak*) exit 124 ;; esac"
    out = tmp_path / "out"
    flags = f"--out={out}", "--parts=kernels,profile,losses,attention,unknown", f"--rows={tmp_path}"
    done, calls = call("check_gpu.sh", *flags, programs={"python3": fails})
    assert done.returncode == 1 and done.stderr == ""
    parts = json.loads((out / "gpu.json").read_text())["parts"]
    assert {part["name"]: part["outcome"] for part in parts} == {
        "kernels": "passed", "profile": "passed", "losses": "failed with exit code 1",
        "attention": "stopped after 100 s", "unknown": "failed with exit code 2",
    }  # fmt: skip
    assert [part["name"] for part in parts if "measured" in part] == ["profile", "attention"]
    report = (out / "gpu.md").read_text()
    assert all(f"| {part['name']} | {part['outcome']} |" in report for part in parts)
    monkeypatch.chdir(tmp_path)
    for _, *flags in calls[1:]:  # the first is of the versions
        if flags[1] == "xlj.bench":
            assert bench.main([*flags[2:], "--check"]) == 0
        else:
            assert all((LAUNCH.parent / file).exists() for file in flags if ".py" in file)


def test_the_check_of_a_gpu_ends_in_time(call, tmp_path):
    done, calls = call(
        "check_gpu.sh", f"--out={tmp_path}/out", "--seconds=9", programs={"python3": ""}
    )
    assert done.returncode == 1 and len(calls) == 1
    outcomes = [line.rpartition(",")[0] for line in done.stdout.splitlines()]
    assert len(outcomes) == 7 and all(line.endswith(": not reached") for line in outcomes)


def test_prepare_builds_rows(call):
    done, calls = call("slurm_rows.sh", "--config=c.py", programs={"python": "echo $JAX_PLATFORMS"})
    assert done.stdout == "cpu\n" and calls == [["python", "-m", "xlj.prepare", "--config=c.py"]]


def test_tpu_hosts_are_asked_for_once_rows_are_there(call, clone):
    gcloud = (
        "command=${!#}; command=${command#--command=}\n"
        'case $* in *describe*) exit 1 ;; *ssh*) bash -c "$command" ;; esac'
    )
    apart = [FLAGS[0], "--workdir", "/r/a b", FLAGS[2]]
    done, calls = call(
        "tpu_pod.sh",
        *apart,
        programs={"python": "", "gcloud": gcloud},
        TPU="t",
        ZONE="z",
        DIR=str(clone),
        ACCELERATOR="v5litepod-16",
        VERSION="v",
    )
    assert done.returncode == 0, done.stderr
    assert calls[0] == ["python", "-m", "xlj.prepare", FLAGS[0], FLAGS[2]]
    assert [call[4] for call in calls[1:4]] == ["describe", "create", "ssh"]
    assert "--accelerator-type=v5litepod-16" in calls[2] and "--worker=all" in calls[3]
    assert calls[4] == ["python", "-m", "xlj.train", "--distributed", *apart]


def test_tpu_hosts_are_not_asked_for_if_rows_fail(call, clone):
    done, calls = call(
        "tpu_pod.sh",
        *FLAGS,
        programs={"python": "exit 2", "gcloud": ""},
        **{"TPU": "t", "ZONE": "z", "DIR": str(clone)},
    )
    assert done.returncode == 2 and len(calls) == 1


@pytest.mark.parametrize(("codes", "starts"), [("0", 1), ("2", 1), ("75 75 0", 3), ("75 1", 2)])
def test_again_restarts_interrupted_commands(tmp_path, codes, starts):
    script = f'echo >> n; codes=({codes}); exit "${{codes[$(($(wc -l < n) - 1))]}}"'
    done = subprocess.run([LAUNCH / "again.sh", "bash", "-c", script], cwd=tmp_path, timeout=60)
    assert done.returncode == int(codes.split()[-1])
    assert (tmp_path / "n").read_text().count("\n") == starts


def test_again_does_not_start_once_it_is_to_stop(tmp_path):
    script = "trap 'sleep 0.3; exit 75' TERM; echo >> n; while :; do sleep 0.05; done"
    started = subprocess.Popen([LAUNCH / "again.sh", "bash", "-c", script], cwd=tmp_path)
    while not (tmp_path / "n").is_file():
        time.sleep(0.02)
    started.send_signal(signal.SIGTERM)
    assert started.wait(timeout=30) == CONTINUE
    assert (tmp_path / "n").read_text() == "\n"


def test_xla_knows_the_flags_for_gpus():
    """It ends with an error on one that it does not know, on whatever device."""
    code = f"source {LAUNCH}/environment.sh; exec {sys.executable} -c 'import jax; jax.devices()'"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    subprocess.run(["bash", "-c", code], env=environment, check=True, timeout=120)


# Of a JobSet, the fields that are used: (type, or fields below); [of] is a list. Those of the API
# jobset.x-k8s.io/v1alpha2, and of Kubernetes' Job and Pod that it is made of.
_JOB = {
    "parallelism": int,
    "completions": int,
    "completionMode": str,
    "backoffLimit": int,
    "podFailurePolicy": {
        "rules": [{"action": str, "onExitCodes": {"operator": str, "values": [int]}}]
    },
    "template": {
        "spec": {
            "restartPolicy": str,
            "terminationGracePeriodSeconds": int,
            "containers": [
                {
                    "name": str,
                    "image": str,
                    "command": [str],
                    "env": [{"name": str, "value": str}],
                    "resources": {
                        "limits": {"cpu": int, "memory": str, "nvidia.com/gpu": int},
                    },
                    "volumeMounts": [{"name": str, "mountPath": str}],
                }
            ],
            "volumes": [{"name": str, "persistentVolumeClaim": {"claimName": str}}],
        }
    },
}
_JOBSET = {
    "apiVersion": str,
    "kind": str,
    "metadata": {"name": str},
    "spec": {
        "network": {"enableDNSHostnames": bool, "subdomain": str},
        "failurePolicy": {
            "maxRestarts": int,
            "rules": [{"action": str, "onJobFailureReasons": [str]}],
        },
        "replicatedJobs": [
            {
                "name": str,
                "replicas": int,
                "dependsOn": [{"name": str, "status": str}],
                "template": {"spec": _JOB},
            }
        ],
    },
}


def check(value, allowed, place):
    if isinstance(allowed, dict):
        assert isinstance(value, dict) and value, place
        for name, below in value.items():
            assert name in allowed, f"{place}.{name}"
            check(below, allowed[name], f"{place}.{name}")
    elif isinstance(allowed, list):
        assert isinstance(value, list) and value, place
        for number, one in enumerate(value):
            check(one, allowed[0], f"{place}[{number}]")
    else:
        assert type(value) is allowed, f"{place}: {value!r}"


@pytest.fixture(scope="module")
def jobset():
    return yaml.safe_load((LAUNCH / "jobset.yaml").read_text("utf-8"))


def test_the_jobset_has_the_fields_of_its_api(jobset):
    check(jobset, _JOBSET, "jobset")
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")


def test_the_jobset_fits_together(jobset):
    spec = jobset["spec"]
    rows, train = spec["replicatedJobs"]
    assert train["dependsOn"] == [{"name": rows["name"], "status": "Complete"}]
    assert spec["failurePolicy"]["rules"] == [
        {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    ]
    pods = []
    for job in (rows, train):
        of = job["template"]["spec"]
        (rule,) = of["podFailurePolicy"]["rules"]
        assert rule["action"] == "FailJob" and of["backoffLimit"] == 0
        assert CONTINUE not in rule["onExitCodes"]["values"] == [1, 2]
        pod = of["template"]["spec"]
        assert pod["restartPolicy"] == "Never"  # what pod failure policies need
        (container,) = pod["containers"]
        assert {v["name"] for v in pod["volumes"]} == {m["name"] for m in container["volumeMounts"]}
        variables = {entry["name"]: entry["value"] for entry in container["env"]}
        used = re.findall(r"\$(\w+)", container["command"][-1])
        assert set(used) <= {*variables, "JOB_COMPLETION_INDEX"}
        pods.append((of, container, variables))
    (_, first, _), (of, second, variables) = pods
    assert "nvidia.com/gpu" not in first["resources"]["limits"]
    assert of["completionMode"] == "Indexed"
    assert of["parallelism"] == of["completions"] == int(variables["PROCESSES"])
    host = f"{jobset['metadata']['name']}-{train['name']}-0-0.{spec['network']['subdomain']}"
    assert f"--coordinator={host}:" in second["command"][-1]
    environment = (LAUNCH / "environment.sh").read_text()
    assert all(flag in environment for flag in variables["XLA_FLAGS"].split())
    assert variables["JAX_COMPILATION_CACHE_DIR"].startswith("/shared/")


def test_the_jobsets_flags_are_those_of_xlj(jobset, tmp_path):
    """The shell words that its containers run, checked by xlj itself."""
    for job in jobset["spec"]["replicatedJobs"]:
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        variables = {entry["name"]: entry["value"] for entry in container["env"]}
        shown = container["command"][-1].replace("exec xlj", f"exec {sys.executable} -m xlj")
        done = subprocess.run(
            [*container["command"][:-1], f"{shown} --check"],
            env={**os.environ, **variables, "JOB_COMPLETION_INDEX": "1", "XLA_FLAGS": ""},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["data"]["cache"] == "/shared/rows"
