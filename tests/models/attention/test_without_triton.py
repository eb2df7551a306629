"""Runs on GPUs in a JAX without the Triton backend, or on GPUs that are too old for it."""

import subprocess
import sys

import jax
import pytest

from xlj.config import Model, parse, recipes
from xlj.models import block, fused_norm, pallas
from xlj.models.attention import choosing
from xlj.sharding import devices
from xlj.tools.planning import programs
from xlj.training import duration_steps
from xlj.training.memory import expected_sizes

RECIPES = (
    *("xlm_r_tlm", "ernie_m_base", "xlm_e", "xlm_align", "meta_xlm:kd", "infoxlm", "quickstart"),
    *("aligner", "mmbert_base"),
)
"""Recipes that use every objective, and models with a position bias and with local layers."""


def lowered(name, monkeypatch, phase=0, **changes):
    """Returns the step of a recipe's phase as lowered for GPUs without the Triton backend."""
    monkeypatch.setattr(devices, "platform", lambda: "gpu")
    for module in (pallas, fused_norm):
        monkeypatch.setattr(module, "triton", None)
    jax.clear_caches()  # traces depend on the platform
    config = recipes.read(name)
    config.update_from_flattened_dict(changes)
    parsed = parse(config).for_platform("gpu")
    resolved, _ = duration_steps.resolve(parsed, None)
    sizes = expected_sizes(resolved)
    _, traced = programs.trace_phase(resolved, sizes, jax.devices()[:1], phase)
    return traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_recipes_lower_for_gpus_without_triton(name, monkeypatch):
    separator = "," if ":" in name else ":"
    teacher = {"objectives.distillation.teacher": "a checkpoint"} if "kd" in name else {}
    text = lowered(f"{name}{separator}tiny", monkeypatch, **teacher)
    assert "triton" not in text and "bf16" in text


@pytest.mark.slow
def test_mmbert_at_8192_tokens_has_no_array_of_all_pairs(monkeypatch):
    changes = {"mesh.fsdp": 1, "train.gradient_accumulation_steps": 576}
    text = lowered("mmbert_base", monkeypatch, phase=1, **changes)
    assert "8192x8192x" not in text and "x8192x" in text


def test_xlj_can_be_imported_without_triton():
    code = (
        "import sys; sys.modules['jax.experimental.pallas.triton'] = None\n"
        "from xlj.models import encoder, pallas; print(pallas.why_no_triton())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "this JAX has no Triton backend\n"


@pytest.mark.parametrize("capability, is_used", [(7.5, False), (8.0, True), (None, True)])
def test_gpus_before_ampere_use_neither_kernels_nor_bfloat16(capability, is_used, monkeypatch):
    """The capability of GPUs that are not present is unknown; `xlj.plan` has only newer GPUs."""
    monkeypatch.setattr(devices, "platform", lambda: "gpu")
    monkeypatch.setattr(devices, "compute_capability", lambda: capability)
    reason = None if is_used else f"needs compute capability 8.0; these GPUs have {capability}"
    assert pallas.why_no_triton() == reason and devices.has_bfloat16() == is_used
    model = Model(dtype="bfloat16")
    assert block._is_fused(model, 64) == is_used
    (line,) = choosing.report(model, [64])
    assert line.startswith(
        f"attention of full layers, rows of 64 tokens: {'triton' if is_used else 'dense'} in"
    )
    assert is_used or f"not triton: {reason}" in " ".join(line.split())
