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

# Collectives run beside the computation that does not need them.
overlap="--xla_tpu_enable_latency_hiding_scheduler=true --xla_tpu_enable_async_collective_fusion=true \
--xla_tpu_enable_async_collective_fusion_fuse_all_gather=true \
--xla_tpu_enable_async_collective_fusion_multiple_steps=true \
--xla_tpu_overlap_compute_collective_tc=true --xla_enable_async_all_gather=true"

on all env LIBTPU_INIT_ARGS="$overlap ${LIBTPU_INIT_ARGS:-}" python -m xlj.train --distributed "$@"
