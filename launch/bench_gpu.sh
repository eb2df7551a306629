#!/usr/bin/env bash
# Benchmarks one GPU in about ten minutes (not yet run on a GPU). It measures train steps of base and large models with rows of 512 tokens,
# compared with transformers (SDPA, torch.compile), the objectives of ERNIE-M and XLM-E, attention, alignment and sentence vectors. It
# writes tables and JSON to the folder OUT:
#
#   OUT=bench launch/bench_gpu.sh            # after pip install -e '.[cuda,peers]'
#
# The MFU is the model operations per second of a step (GFLOP/s in the last column), divided by the peak rate of
# the chip, which the first lines measure. python -m xlj.plan estimates the upper bound of the MFU (docs/scaling.md).
set -euo pipefail
: "${OUT:?set it to the folder for the tables}"
mkdir -p "$OUT"
sizes=(--length=512 --config.model.dtype=bfloat16 --config.model.scan_layers=False)
large=(--config.model.layers=24 --config.model.hidden=1024 --config.model.heads=16 --config.model.intermediate=4096)

bench() {
    local name=$1
    shift
    echo "== $name"
    python -m xlj.bench "$@" "${sizes[@]}" --json="$OUT/$name.json" --table="$OUT/$name.md"
}

bench base --config=xlm_r_base --rows=32 --what=peak,step,attention,links,align,embed
bench large --config=xlm_r_base "${large[@]}" --rows=16 --what=step,attention
bench objectives_base --config=ernie_m_base --rows=32 --what=objectives --objectives=mmlm,tlm,camlm
bench objectives_large --config=ernie_m_large --rows=16 --what=objectives --objectives=mmlm,tlm,camlm
bench xlm_e_base --config=xlm_e --rows=32 --what=objectives --objectives=mrtd,trtd
bench xlm_e_large --config=xlm_e "${large[@]}" --rows=16 --what=objectives --objectives=mrtd,trtd
cat "$OUT"/*.md
