#!/usr/bin/env bash
# Trains on all hosts of a TPU pod slice, with xlj's flags:
#
#   TPU=my-pod ZONE=us-east5-b DIR=/shared/xlj launch/tpu_pod.sh \
#       --config=configs/xlm_r_base.py --workdir=/shared/runs/base --config.data.cache=/shared/rows ...
#
# DIR is a clone of the repository with a virtual environment (.venv, pip install -e '.[tpu]') on a
# file system that every host mounts, such as Filestore. The same line again goes on from the latest
# checkpoint.
set -euo pipefail
: "${TPU:?name of the TPU}" "${ZONE:?its zone}" "${DIR:?the clone on a shared file system}"

on() { # on WORKERS COMMAND...: runs a command in DIR, its arguments quoted for the remote shell
    local workers=$1
    shift
    gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --worker="$workers" \
        --command="cd $(printf %q "$DIR") && source .venv/bin/activate && $(printf '%q ' "$@")"
}

# Rows are made once, on one host and its CPUs; this does nothing when they are there.
prepare=()
for flag in "$@"; do
    [[ $flag == --workdir=* ]] || prepare+=("$flag")
done
on 0 python -m xlj.prepare "${prepare[@]}"

on all python -m xlj.train --distributed "$@"
