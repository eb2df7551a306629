#!/usr/bin/env bash
# Trains on GPU nodes (slurm.sh submits it). An interrupted run (exit code 75) is requeued.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8      # one process per GPU
#SBATCH --gres=gpu:8             # every process sees all GPUs of its node and uses its own
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@180        # SIGTERM 3 minutes before the end: the run saves and ends with 75
#SBATCH --requeue                # also after a node failure
#SBATCH --open-mode=append       # one log for all starts
set -euo pipefail
source .venv/bin/activate
source launch/environment.sh

code=0
srun python -m xlj.train --distributed "$@" || code=$?
# 75: interrupted (docs/launch.md). 137: killed together with the process that would report 75. RESTARTS
# limits how often a permanent fault is retried.
if ((code == 75 || code == 137)) && ((${SLURM_RESTART_COUNT:-0} < ${RESTARTS:-100})); then
    echo "exit code $code: requeued" >&2
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
