#!/usr/bin/env bash
# Builds rows on the CPUs of one node; slurm.sh submits this job. Finished rows are kept, so a job that ran out of
# time resumes when it is submitted again.
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=64       # one process per CPU
#SBATCH --time=24:00:00
#SBATCH --open-mode=append
set -euo pipefail
source .venv/bin/activate
export JAX_PLATFORMS=cpu
exec python -m xlj.prepare "$@"
