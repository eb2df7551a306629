#!/usr/bin/env bash
# Trains on GPU nodes; slurm.sh submits this job. An interrupted run (exit code 75) is requeued.
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
# Exit code 75: the run was interrupted (docs/launch.md). 137: the process that reports 75 was killed too. RESTARTS
# limits the number of retries after a permanent fault [100].
if ((code == 75 || code == 137)) && ((${SLURM_RESTART_COUNT:-0} < ${RESTARTS:-100})); then
    echo "exit code $code: requeued" >&2
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
