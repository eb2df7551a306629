"""xlj.bench measures xlj and other libraries, and writes the results."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from xlj import bench
from xlj.config import ConfigError, parse
from xlj.tools.benchmarking import inference, peers, profile, rows, train_steps
from xlj.tools.benchmarking.measurements import Measurement, Size, in_own_process, table

SMALL = (
    "--config=configs/xlm_r_tlm.py",
    *("--config.model.layers=1", "--config.model.hidden=16", "--config.model.heads=2"),
    *("--config.model.intermediate=32", "--config.data.vocabulary_size=2000"),
    *("--rows=2", "--length=64", "--repeats=1"),
)
WITHOUT_PEERS = "peak,step,profile,attention,links,align,embed,prepare"


@pytest.fixture
def no_peers(monkeypatch):
    """Hides the libraries that xlj is compared with."""
    for name in ("torch", "transformers", "simalign", "sentence_transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    peers.library.cache_clear()
    yield
    peers.library.cache_clear()


@pytest.mark.slow
def test_bench_measures_xlj_alone_if_no_other_library_is_installed(call, tmp_path, no_peers):
    files = tmp_path / "b.json", tmp_path / "b.md"
    printed = call(
        bench.main, *SMALL, f"--what={WITHOUT_PEERS}", f"--json={files[0]}", f"--table={files[1]}"
    )
    results = json.loads(files[0].read_text())
    measured = results["measurements"]
    assert {m["what"] for m in measured} == set(WITHOUT_PEERS.split(","))
    assert all(m["value"] > 0 and m["peer_value"] is None and m["ratio"] is None for m in measured)
    assert len(printed.out.splitlines()) == len(measured)
    assert printed.err.count("torch is not measured") == 1
    assert results["machine"]["cores"] and "jax" in results["machine"]["versions"]
    rows = [line for line in files[1].read_text().splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(measured)


@pytest.mark.slow
def test_objectives_are_measured_relative_to_the_first(tiny):
    size = Size(2, 64, 1)
    first, other = train_steps.measure_objectives(parse(tiny), size, ["mmlm", "trtd"])
    assert (first.name, other.name) == ("mmlm", "trtd") and other.value > 0
    assert first.note.startswith("time 1.00, memory 1.00 (")


@pytest.mark.parametrize(
    "kind, kernel, source",
    [
        (
            "attention",
            "attention_of_query",
            "jit(step)/transpose(jvp())/Layer/attention/pallas_call",
        ),
        ("vocabulary", "logits_gradient", ""),
        ("norms", "add_norm_backward", ""),
        ("products", "gemm_fusion_dot_general_12", "jit(step)/jvp()/Layer/attention/dot_general"),
        ("products", "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", ""),
        ("reductions", "input_convert_reduce_fusion_3", "jit(step)/jvp()/Layer/outer/reduce_sum"),
        ("optimizer", "loop_select_fusion_2", "jit(step)/jit(_where)/select_n"),
        ("optimizer", "input_concatenate_fusion", "jit(step)/mul"),
        ("copies", "MemcpyD2D", ""),
        ("copies", "loop_slice_fusion_1", "jit(step)/jvp()/slice"),
        ("elementwise", "loop_convert_fusion", "jit(step)/jvp()/mul"),
        ("elementwise", "loop_add_fusion", "jit(step)/Layer/attention/add"),
    ],
)
def test_kernels_are_classified_by_kind(kind, kernel, source):
    assert profile.kind_of(kernel, source) == kind


def test_a_trace_is_summed_by_kind_and_kernel():
    """GPU times come from the kernels in streams, CPU times from the program's instructions."""

    def plane(name, *lines):
        return SimpleNamespace(name=name, lines=[
            SimpleNamespace(name=line, events=[
                SimpleNamespace(name=name, duration_ns=1e6 * ms) for name, ms in events
            ])
            for line, *events in lines
        ])  # fmt: skip

    program = (
        "ENTRY %main (x: f32[2]) -> f32[2] {\n"
        '  %loop_add.1 = f32[2] add(%x, %x), metadata={op_name="jit(step)/jit(_where)/add"}\n'
        '  ROOT %dot.2 = f32[2] add(%x, %x), metadata={op_name="jit(step)/jvp()/dot_general"}\n}\n'
    )
    host = plane("/host:CPU", ("python", ("dot.2", 4), ("main", 9)))
    gpu = plane(
        "/device:GPU:0",
        ("Stream #7(Compute)", ("loop_add_1", 1), ("logits_gradient", 2), ("logits_gradient_1", 3)),
        ("XLA Modules", ("step", 6)),
        ("Stream #8(MemcpyD2D)", ("MemcpyD2D", 0.5)),
    )
    assert profile.sum_times(SimpleNamespace(planes=[host]), program) == {"products": {"dot": 4}}
    assert profile.sum_times(SimpleNamespace(planes=[host, gpu]), program) == {
        "optimizer": {"loop_add": 1}, "vocabulary": {"logits_gradient": 5},
        "copies": {"MemcpyD2D": 0.5},
    }  # fmt: skip


@pytest.mark.slow
def test_bench_needs_neither_tensorflow_nor_seqio():
    program = (
        "import sys\n"
        "for name in ('tensorflow', 'tensorflow_datasets', 'seqio'): sys.modules[name] = None\n"
        "from xlj.bench import main\n"
        f"sys.exit(main({[*SMALL, '--what=step,prepare']!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("\n") == 3


def test_in_own_process_starts_a_new_process_only_on_cpus(monkeypatch):
    assert in_own_process(os.getpid) != os.getpid()
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")  # this process occupies it
    assert in_own_process(os.getpid) == os.getpid()


def test_results_before_an_error_are_written(call, tmp_path, monkeypatch):
    def fails(config, size):
        raise ConfigError("no more")
        yield

    monkeypatch.setattr(rows, "prepare", fails)
    with pytest.raises(ConfigError, match="no more"):
        call(bench.main, *SMALL, "--what=links,prepare", f"--table={tmp_path}/b.md")
    assert "| links | itermax |" in (tmp_path / "b.md").read_text()


def test_a_peer_that_runs_out_of_memory_is_reported_and_skipped(capsys, monkeypatch):
    class Full(RuntimeError):
        """Replaces torch.OutOfMemoryError."""

    torch = SimpleNamespace(OutOfMemoryError=Full, cuda=SimpleNamespace(empty_cache=bool))
    monkeypatch.setattr(peers, "library", lambda name: torch)

    def call():
        raise Full("CUDA out of memory. Tried to allocate 90 GiB.\nMore.")

    assert peers.torch_median_seconds(call, 1) is None
    message = capsys.readouterr().err
    assert message == "torch is not measured: CUDA out of memory. Tried to allocate 90 GiB.\n"
    assert peers.torch_median_seconds(bool, 1) >= 0


def test_ratios_above_1_mean_faster_for_times_and_for_rates():
    rate = Measurement("embed", "mean", 200.0, "sentences/s", "others", 50.0)
    time = Measurement("start", "import xlj", 0.05, "s", "import others", 0.2)
    assert rate.ratio == time.ratio == pytest.approx(4)
    assert rate.line == "embed mean: 200 sentences/s, others 50: 4.0 times as fast"
    assert Measurement("peak", "float32", 1234.0, "GFLOP/s", note="n").line == (
        "peak float32: 1,234 GFLOP/s (n)"
    )
    last = table([time]).splitlines()[-1]
    assert last == "| start | import xlj | 0.05 s | 0.2 (import others) | 4.0 |  |"


@pytest.mark.parity
@pytest.mark.parametrize("method", ["argmax", "itermax"])
def test_links_equal_those_of_simalign(method):
    pytest.importorskip("simalign", reason="simalign is not installed (.[peers])")
    vectors, lengths = inference.random_vectors(width=32, pairs=40)
    xlj_links = np.asarray(inference.xlj_call(method, vectors, lengths)())
    simalign_links = inference.simalign_links(vectors, lengths, inference.SIMALIGN_NAMES[method])
    for actual, expected, m, n in zip(xlj_links, simalign_links, *lengths, strict=True):
        np.testing.assert_array_equal(actual[:m, :n], expected > 0)


@pytest.mark.slow
@pytest.mark.parity
def test_bench_compares_xlj_with_installed_libraries(call, tmp_path):
    for name in ("torch", "simalign", "sentence_transformers"):
        pytest.importorskip(name, reason=f"{name} is not installed (.[peers])")
    call(
        bench.main,
        *SMALL,
        "--what=peak,step,attention,links,align,embed,start",
        f"--json={tmp_path}/b",
    )
    measurements = json.loads((tmp_path / "b").read_text())["measurements"]
    without_peer = {m["name"] for m in measurements if m["peer_value"] is None}
    assert without_peer == {"optimal_transport", "released"}
