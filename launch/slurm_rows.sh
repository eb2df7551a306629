#!/usr/bin/env bash
# Makes rows on the CPUs of one node (slurm.sh submits it). What is there is left alone, so a job that ran
# out of time goes on when it is submitted again.
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=64       # a process each
#SBATCH --time=24:00:00
#SBATCH --open-mode=append
set -euo pipefail
source .venv/bin/activate
export JAX_PLATFORMS=cpu
exec python -m xlj.prepare "$@"
