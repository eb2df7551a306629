"""The scripts in launch/, run with stub programs that only log their arguments."""

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
from xlj.io.own_process import CONTINUE

LAUNCH = Path(__file__).parents[1] / "launch"
FLAGS = ["--config=c.py", "--workdir=/r/a b", "--config.data.mono=/t/{language}.txt"]


@pytest.fixture
def clone(tmp_path):
    """A folder like a clone: launch/, and a virtual environment with an empty activate script."""
    (tmp_path / "launch").symlink_to(LAUNCH)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").write_text("")
    return tmp_path


@pytest.fixture
def call(clone):
    """Runs a script in the clone; returns the finished process and the calls of stub programs."""

    def call(script, *flags, programs, **variables):
        log, folder = clone / "log", clone / "programs"
        folder.mkdir()
        for name, body in programs.items():
            program = folder / name
            log_call = "import json, os, sys; f = open(os.environ['LOG'], 'a')"
            log_call += "; print(json.dumps([sys.argv[1], *sys.argv[2:]]), file=f)"
            program.write_text(
                f'#!/usr/bin/env bash\n"{sys.executable}" -c "{log_call}" {name} "$@"\n{body}\n'
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
def test_scripts_are_valid_bash(script):
    subprocess.run(["bash", "-n", script], check=True)


def sbatch_options(script):
    return dict(re.findall(r"^#SBATCH --([\w-]+)=?(\S*)", (LAUNCH / script).read_text(), re.M))


def test_slurm_builds_rows_on_cpus_before_it_trains_on_gpus(call):
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


def test_slurm_submits_no_training_if_the_job_for_rows_is_refused(call):
    done, calls = call("slurm.sh", *FLAGS, programs={"sbatch": "exit 1"})
    assert done.returncode == 1 and len(calls) == 1


@pytest.mark.parametrize(
    ("code", "restarts", "requeued"),
    [(0, 0, False), (2, 0, False), (1, 0, False), (CONTINUE, 3, True), (137, 0, True)]
    + [(CONTINUE, 100, False)],
)
def test_slurm_requeues_interrupted_runs(call, clone, code, restarts, requeued):
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
    assert calls[1:] == ([["scontrol", "requeue", "34"]] if requeued else [])
    assert "latency_hiding" in done.stdout and f" {clone}/build/compiled\n" in done.stdout


def test_bench_accepts_the_flags_of_bench_gpu(call, tmp_path, monkeypatch):
    write_table = 'for x in "$@"; do [[ $x != --table=* ]] || echo a table > "${x#--table=}"; done'
    done, calls = call("bench_gpu.sh", programs={"python": write_table}, OUT=str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("a table") == len(calls) == 6
    monkeypatch.chdir(tmp_path)  # recipes must be found by name, in any folder
    for program, *flags in calls:
        assert [program, *flags[:2]] == ["python", "-m", "xlj.bench"]
        assert bench.main([*flags[2:], "--check"]) == 0


WRITE_JSON = 'for x in "$@"; do [[ $x != --json=* ]] || echo "{}" > "${x#--json=}"; done; '


def test_check_gpu_reports_the_outcome_of_each_part(call, tmp_path, monkeypatch):
    fail_some = (
        WRITE_JSON + "case $* in *test_fused_losses*) exit 1 ;; *--what=peak*) exit 124 ;; esac"
    )
    out = tmp_path / "out"
    flags = f"--out={out}", "--parts=kernels,profile,losses,attention,unknown", f"--rows={tmp_path}"
    done, calls = call("check_gpu.sh", *flags, programs={"python3": fail_some})
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
    for _, *flags in calls[1:]:  # the first call prints versions
        if flags[1] == "xlj.bench":
            assert bench.main([*flags[2:], "--check"]) == 0
        else:
            assert all((LAUNCH.parent / file).exists() for file in flags if ".py" in file)


def test_check_gpu_ends_within_its_time_limit(call, tmp_path):
    done, calls = call(
        "check_gpu.sh", f"--out={tmp_path}/out", "--seconds=9", programs={"python3": ""}
    )
    assert done.returncode == 1 and len(calls) == 1
    outcomes = [line.rpartition(",")[0] for line in done.stdout.splitlines()]
    assert len(outcomes) == 7 and all(line.endswith(": not reached") for line in outcomes)


def test_the_slurm_job_for_rows_runs_prepare_on_cpus(call):
    done, calls = call("slurm_rows.sh", "--config=c.py", programs={"python": "echo $JAX_PLATFORMS"})
    assert done.stdout == "cpu\n" and calls == [["python", "-m", "xlj.prepare", "--config=c.py"]]


def test_tpu_hosts_are_requested_after_rows_are_built(call, clone):
    gcloud = (
        "command=${!#}; command=${command#--command=}\n"
        'case $* in *describe*) exit 1 ;; *ssh*) bash -c "$command" ;; esac'
    )
    flags = [FLAGS[0], "--workdir", "/r/a b", FLAGS[2]]
    done, calls = call(
        "tpu_pod.sh",
        *flags,
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
    assert calls[4] == ["python", "-m", "xlj.train", "--distributed", *flags]


def test_tpu_hosts_are_not_requested_if_rows_fail(call, clone):
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


def test_again_does_not_restart_a_command_after_sigterm(tmp_path):
    script = "trap 'sleep 0.3; exit 75' TERM; echo >> n; while :; do sleep 0.05; done"
    process = subprocess.Popen([LAUNCH / "again.sh", "bash", "-c", script], cwd=tmp_path)
    while not (tmp_path / "n").is_file():
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == CONTINUE
    assert (tmp_path / "n").read_text() == "\n"


def test_xla_accepts_the_flags_for_gpus():
    """XLA refuses unknown flags on every device, so a CPU is enough for this test."""
    code = f"source {LAUNCH}/environment.sh; exec {sys.executable} -c 'import jax; jax.devices()'"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    subprocess.run(["bash", "-c", code], env=environment, check=True, timeout=120)


# The fields that launch/jobset.yaml may have, with their types or inner fields; [...] is a list.
# The API jobset.x-k8s.io/v1alpha2 and the Jobs and Pods of Kubernetes in it define these fields.
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
        for name, inner in value.items():
            assert name in allowed, f"{place}.{name}"
            check(inner, allowed[name], f"{place}.{name}")
    elif isinstance(allowed, list):
        assert isinstance(value, list) and value, place
        for number, item in enumerate(value):
            check(item, allowed[0], f"{place}[{number}]")
    else:
        assert type(value) is allowed, f"{place}: {value!r}"


@pytest.fixture(scope="module")
def jobset():
    return yaml.safe_load((LAUNCH / "jobset.yaml").read_text("utf-8"))


def test_the_jobset_has_only_fields_of_its_api(jobset):
    check(jobset, _JOBSET, "jobset")
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")


def test_the_parts_of_the_jobset_are_consistent(jobset):
    spec = jobset["spec"]
    rows, train = spec["replicatedJobs"]
    assert train["dependsOn"] == [{"name": rows["name"], "status": "Complete"}]
    assert spec["failurePolicy"]["rules"] == [
        {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    ]
    pods = []
    for job in (rows, train):
        job_spec = job["template"]["spec"]
        (rule,) = job_spec["podFailurePolicy"]["rules"]
        assert rule["action"] == "FailJob" and job_spec["backoffLimit"] == 0
        assert CONTINUE not in rule["onExitCodes"]["values"] == [1, 2]
        pod = job_spec["template"]["spec"]
        assert pod["restartPolicy"] == "Never"  # required by pod failure policies
        (container,) = pod["containers"]
        assert {v["name"] for v in pod["volumes"]} == {m["name"] for m in container["volumeMounts"]}
        variables = {entry["name"]: entry["value"] for entry in container["env"]}
        used = re.findall(r"\$(\w+)", container["command"][-1])
        assert set(used) <= {*variables, "JOB_COMPLETION_INDEX"}
        pods.append((job_spec, container, variables))
    (_, first, _), (job_spec, second, variables) = pods
    assert "nvidia.com/gpu" not in first["resources"]["limits"]
    assert job_spec["completionMode"] == "Indexed"
    assert job_spec["parallelism"] == job_spec["completions"] == int(variables["PROCESSES"])
    host = f"{jobset['metadata']['name']}-{train['name']}-0-0.{spec['network']['subdomain']}"
    assert f"--coordinator={host}:" in second["command"][-1]
    environment = (LAUNCH / "environment.sh").read_text()
    assert all(flag in environment for flag in variables["XLA_FLAGS"].split())
    assert variables["JAX_COMPILATION_CACHE_DIR"].startswith("/shared/")


def test_xlj_accepts_the_flags_of_the_jobset(jobset, tmp_path):
    """Runs the commands of the containers with --check."""
    for job in jobset["spec"]["replicatedJobs"]:
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        variables = {entry["name"]: entry["value"] for entry in container["env"]}
        shell_command = container["command"][-1].replace(
            "exec xlj", f"exec {sys.executable} -m xlj"
        )
        done = subprocess.run(
            [*container["command"][:-1], f"{shell_command} --check"],
            env={**os.environ, **variables, "JOB_COMPLETION_INDEX": "1", "XLA_FLAGS": ""},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["data"]["cache"] == "/shared/rows"
