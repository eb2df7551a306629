#!/usr/bin/env bash
# Trains on GPU nodes (slurm.sh submits it). A run that was cut, exit code 75, goes back into the queue.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8      # one process a GPU
#SBATCH --gres=gpu:8             # every process sees all GPUs of its node and takes its own
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@180        # SIGTERM 3 minutes before the end: the run saves and ends with 75
#SBATCH --requeue                # also after a node failed
#SBATCH --open-mode=append       # one log, however often it starts
set -euo pipefail
source .venv/bin/activate
source launch/environment.sh

code=0
srun python -m xlj.train --distributed "$@" || code=$?
# 75: cut (docs/launch.md). 137: so killed that not even its guard could say so. A fault that comes again
# each time is not to go round for ever.
if ((code == 75 || code == 137)) && ((${SLURM_RESTART_COUNT:-0} < ${RESTARTS:-100})); then
    echo "exit code $code: back into the queue" >&2
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
