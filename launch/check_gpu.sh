#!/usr/bin/env bash
# Tests and measures xlj on one GPU of this machine, and writes gpu.md and gpu.json:
#
#   launch/check_gpu.sh --out=FOLDER [--seconds=480] [--parts=kernels,profile,...] [--rows=FOLDER]
#
# The most important parts run first. Each part has a time limit, and --seconds limits all parts together; the report lists the parts that
# were not reached. --rows names finished rows of configs/quickstart.py; without --rows they are built. PYTHON names an interpreter with JAX
# for CUDA, pytest, pytest-xdist, hypothesis and xlj's other requirements [python3]. Network, TensorFlow and seqio are not needed.
set -uo pipefail
python=${PYTHON:-python3}
out='' seconds=480 rows='' parts=kernels,profile,quickstart,losses,attention,objectives,xlm_e
for flag in "$@"; do
    case $flag in
    --out=* | --seconds=* | --rows=* | --parts=*)
        name=${flag%%=*}
        printf -v "${name#--}" %s "${flag#*=}"
        ;;
    *)
        sed -n 's/^# \?//;2,9p' "$0" >&2
        exit 2
        ;;
    esac
done
: "${out:?--out=FOLDER is needed}"
mkdir -p "$out"
out=$(realpath "$out")
export QUICKSTART_ROWS=${rows:+$(realpath "$rows")}
cd "$(dirname "$0")/.." || exit
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL=2
export JAX_PLATFORMS=${JAX_PLATFORMS:-cuda,cpu} JAX_DISABLE_MOST_OPTIMIZATIONS=0 XLA_PYTHON_CLIENT_PREALLOCATE=false

run_tests() { # arguments: number of processes, then pytest's. XLA's autotuning would take longer than the tests
    XLA_FLAGS="${XLA_FLAGS:-} --xla_gpu_autotune_level=0" limited "$python" -m pytest -q --tb=short -p no:cacheprovider -n "$@"
}

bench() { # arguments: --what, recipe, then further flags
    limited "$python" -m xlj.bench --what="$1" --config="configs/$2.py" --config.model.dtype=bfloat16 --config.model.scan_layers=False \
        "${@:3}" --json="$out/$part.json" --table="$out/$part.md"
}

limited() { # sends SIGINT, on which a benchmark writes the results that it has
    timeout --signal=INT --kill-after=10 "$limit" "$@"
}

run_part() {
    case $part in
    kernels)
        run_tests 8 -m 'gpu or not slow and not extra' -k 'not tpu' \
            tests/models/attention/test_kernels.py tests/models/test_block.py
        ;;
    quickstart) run_tests 0 -m gpu tests/training/test_on_gpu.py ;;
    losses) run_tests 8 -m gpu tests/objectives/test_fused_losses.py ;;
    profile) bench profile xlm_r_base --rows=32 --length=512 ;;
    attention) bench peak,attention xlm_r_base --rows=32 --length=512 ;;
    objectives) bench objectives ernie_m_base --rows=16 --length=256 --objectives=mmlm,camlm,tlm ;;
    xlm_e) bench profile xlm_e --rows=16 --length=512 --objectives=mrtd ;;
    *)
        echo "no such part: $part"
        return 2
        ;;
    esac
}

limit_of() { # prints the seconds that a part may take
    case $1 in kernels | losses | quickstart) echo 150 ;; *) echo 100 ;; esac
}

write_report() {
    local name outcome took each separator=''
    {
        echo "# xlj on a GPU"
        echo
        cat "$out/machine.txt"
        printf '\n| part | outcome | s |\n|---|---|---|\n'
        while IFS=$'\t' read -r name outcome took; do echo "| $name | $outcome | $took |"; done <"$out/parts.tsv"
        for each in ${parts//,/ }; do
            [[ -e $out/$each.log ]] || continue
            printf '\n## %s\n\n' "$each"
            if [[ -e $out/$each.md ]]; then cat "$out/$each.md"; else
                printf '```\n%s\n```\n' "$(tail -n 25 "$out/$each.log" | cut -c1-300)"
            fi
        done
    } >"$out/gpu.md"
    {
        printf '{"parts": ['
        while IFS=$'\t' read -r name outcome took; do
            printf '%s\n  {"name": "%s", "outcome": "%s", "seconds": %s' "$separator" "$name" "$outcome" "$took"
            separator=','
            [[ ! -e $out/$name.json ]] || printf ', "measured": %s' "$(cat "$out/$name.json")"
            printf '}'
        done <"$out/parts.tsv"
        printf '\n]}\n'
    } >"$out/gpu.json"
}

{
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo "nvidia-smi: not found"
    git log -1 --format='xlj %h of %cs' 2>/dev/null || true
    "$python" -c 'import flax, jax, optax, platform
print(f"Python {platform.python_version()}, jax {jax.__version__}, flax {flax.__version__}, optax {optax.__version__}, {jax.devices()}")' 2>&1 | tail -n 1
} >"$out/machine.txt" || {
    cat "$out/machine.txt" >&2
    exit 2
}
: >"$out/parts.tsv"
failed=0
for part in ${parts//,/ }; do
    rm -f "$out/$part".{log,md,json}
    limit=$(limit_of "$part") left=$((seconds - SECONDS)) outcome=passed begun=$SECONDS
    if ((left < 15)); then
        outcome='not reached'
    else
        ((limit < left)) || limit=$left
        run_part >"$out/$part.log" 2>&1
        code=$?
        case $code in
        0) ;;
        124 | 137) outcome="stopped after $limit s" ;;
        *) outcome="failed with exit code $code" ;;
        esac
    fi
    [[ $outcome == passed ]] || failed=1
    printf '%s\t%s\t%s\n' "$part" "$outcome" $((SECONDS - begun)) >>"$out/parts.tsv"
    write_report
    echo "== $part: $outcome, $((SECONDS - begun)) s"
    [[ ! -e $out/$part.log ]] || grep -v Warning "$out/$part.log" | tail -n "${TAIL:-12}" | cut -c1-300
done
exit $failed
