#!/usr/bin/env bash
# Submits a run to Slurm: a CPU job that builds the rows, and a GPU job that trains when they are
# complete. Start it in the clone, with xlj's flags:
#
#   launch/slurm.sh --config=configs/xlm_r_base.py --workdir=/shared/runs/base \
#       --config.data.cache=/shared/rows --config.data.mono='/shared/cc100/{language}.txt.xz'
#
# The variable NAME names the jobs [xlj]. Of all jobs with the same name, only one trains at a time. Repeat the
# command to resume from the latest checkpoint. The script prints the numbers of both jobs.
set -euo pipefail
here=$(dirname "$0") name=${NAME:-xlj}

source "$here/prepare_flags.sh" "$@"

rows=$(sbatch --parsable --job-name="$name-rows" "$here/slurm_rows.sh" "${prepare[@]}")
rows=${rows%%;*} # sbatch may print ";CLUSTER" after the number
# If building the rows fails, the second job is removed from the queue.
training=$(sbatch --parsable --job-name="$name" --dependency="afterok:$rows,singleton" \
    --kill-on-invalid-dep=yes "$here/slurm_train.sh" "$@")
echo "rows: job $rows; training: job ${training%%;*}"
