#!/usr/bin/env bash
# Trains on GPU nodes of a Slurm cluster; submit it from the repository, with xlj's flags:
#
#   sbatch launch/slurm.sh --config=configs/xlm_r_base.py --workdir=/shared/runs/base \
#       --config.data.cache=/shared/rows --config.data.mono='/shared/cc100/{language}.txt.xz'
#
# Submit the same line again to go on from the latest checkpoint.
#SBATCH --job-name=xlj
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8      # one process a GPU
#SBATCH --gres=gpu:8             # every process sees all GPUs of its node and takes its own
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@180        # SIGTERM 3 minutes before the end: the run saves and exits with 0
#SBATCH --dependency=singleton   # several submissions of one name run one after another
set -euo pipefail
source .venv/bin/activate

# Rows are made once, on one node; this does nothing when they are there. It knows no --workdir.
prepare=()
for flag in "$@"; do
    [[ $flag == --workdir=* ]] || prepare+=("$flag")
done
srun --nodes=1 --ntasks=1 python -m xlj.prepare "${prepare[@]}"

# Collectives run beside the computation that does not need them.
export XLA_FLAGS="--xla_gpu_enable_latency_hiding_scheduler=true ${XLA_FLAGS:-}"
srun python -m xlj.train --distributed "$@"
