#!/usr/bin/env bash
# Trains on all hosts of a TPU VM slice, with xlj's flags:
#
#   TPU=my-slice ZONE=us-west4-a DIR=/shared/xlj launch/tpu_pod.sh \
#       --config=configs/xlm_r_base.py --workdir=/shared/runs/base --config.data.cache=/shared/rows ...
#
# DIR is a clone of the repository with a virtual environment (.venv, pip install -e '.[tpu]') on a
# file system that every host mounts, such as Filestore. Rows are built first, on the CPUs of the machine
# that runs this script, which must mount data.cache too. Then the slice is created, if it does not exist and
# ACCELERATOR and VERSION are set (v5litepod-16, v2-alpha-tpuv5-lite). Repeat the command to resume from the
# latest checkpoint.
set -euo pipefail
: "${TPU:?set the name of the TPU}" "${ZONE:?set the zone of the TPU}" "${DIR:?set the clone on a shared file system}"

source "$(dirname "$0")/prepare_flags.sh" "$@"
JAX_PLATFORMS=cpu python -m xlj.prepare "${prepare[@]}"

vm=(gcloud compute tpus tpu-vm)
if [[ -n ${ACCELERATOR:-} ]] && ! "${vm[@]}" describe "$TPU" --zone="$ZONE" > /dev/null 2>&1; then
    "${vm[@]}" create "$TPU" --zone="$ZONE" --accelerator-type="$ACCELERATOR" --version="${VERSION:?set the version of the TPU software}"
fi
# An interrupted run restarts on every host automatically.
"${vm[@]}" ssh "$TPU" --zone="$ZONE" --worker=all --command="cd $(printf %q "$DIR") && source .venv/bin/activate \
&& source launch/environment.sh && launch/again.sh python -m xlj.train --distributed $(printf '%q ' "$@")"
