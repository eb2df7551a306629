"""Topologies of chips that need not be present; only the compiler for them must be installed."""

import math
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from xlj.config import ConfigError
from xlj.tools.planning.chips import CHIPS, Chip

if TYPE_CHECKING:  # JAX must not be imported before `use_compilers` is called
    import jax

_TARGET = """
gpu_device_info {{
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  core_count: {cores} fpus_per_core: 128 threads_per_warp: 32 clock_rate_ghz: 1.7
  threads_per_block_limit: 1024 threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_block_limit: 65536 registers_per_core_limit: 65536
  shared_memory_per_block: 49152 shared_memory_per_core: {shared}
  shared_memory_per_block_optin: {optin}
  l2_cache_size: 52428800 memory_bandwidth: {bandwidth} device_memory_size: {memory}
}}
platform_name: "CUDA" device_description_str: "{name}"
dnn_version_info {{ major: 9 minor: 12 }} runtime_version {{ major: 13 }}
"""


class Topology(NamedTuple):
    """Chips and their connections.

    Attributes:
      name: the text of the topology, such as h100:8x8.
      shape: (hosts, GPUs per host) for GPUs, or the sides of the torus for TPUs.
    """

    name: str
    chip: Chip
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of chips."""
        return math.prod(self.shape)

    def devices(self) -> Sequence["jax.Device"]:
        """Returns the chips as devices of JAX, for which programs can be compiled.

        Call `use_compilers` before this method.

        Raises:
          ConfigError: if the compiler is not installed, or does not support the topology.
        """
        from jax.experimental import topologies

        platform = {"gpu": "cuda", "tpu": "tpu"}[self.chip.platform]
        sides = "x".join(map(str, self.shape))
        try:
            if platform == "tpu":
                kind = self.name.partition(":")[0]
                return topologies.get_topology_desc(f"{kind}:{sides}", platform="tpu").devices
            target = _TARGET.format(
                **self.chip.target,
                optin=int(self.chip.target["shared"]) - 1024,
                bandwidth=int(self.chip.bandwidth),
                memory=int(self.chip.memory),
            )
            return topologies.get_topology_desc(
                platform="cuda", topology=f"1x{sides}", target_config=target
            ).devices
        except Exception as error:  # each plugin raises its own kind
            reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise ConfigError(
                f"--topology={self.name}: the compiler is not installed, or does not support this "
                f"topology ({reason[:200]}); install the compiler with "
                f"pip install -e '.[{platform}]' (no chip is needed), or choose another topology"
            ) from None


def parse(text: str) -> Topology:
    """Parses a topology.

    For example, h100:8x8 is eight hosts with eight GPUs each, and v5e:4x4 a torus of sixteen TPUs.

    Raises:
      ConfigError: if the text is not a topology.
    """
    kind, _, sides = text.partition(":")
    known = ", ".join(CHIPS)
    if kind not in CHIPS:
        raise ConfigError(
            f"--topology={text}: expected {known}, then a colon and sizes, e.g. h100:8x8 or v5e:4x4"
        )
    expected, example = "the two sides of a torus", "4x4"
    if CHIPS[kind].platform == "gpu":
        expected, example = "hosts x GPUs per host", "8x8"
    elif kind == "v5p":
        expected, example = "the three sides of a torus", "4x4x4"
    shape = tuple(map(int, sides.split("x"))) if _is_shape(sides) else ()
    if len(shape) != len(example.split("x")):
        raise ConfigError(f"--topology={text}: expected {expected}, e.g. {kind}:{example}")
    return Topology(text, CHIPS[kind], shape)


def _is_shape(text: str) -> bool:
    return re.fullmatch(r"[1-9]\d*(x[1-9]\d*){1,2}", text) is not None


def use_compilers() -> None:
    """Prepares this process to compile for chips that it does not have.

    Must be called before JAX is imported.
    """
    variables = {"TPU_SKIP_MDS_QUERY": "1", "TPU_MIN_LOG_LEVEL": "3", "TPU_STDERR_LOG_LEVEL": "3"}
    # Several processes must be able to compile, so libtpu must not search for TPUs or lock them.
    variables |= {"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}
    variables |= {"TPU_ACCELERATOR_TYPE": "v5litepod-16"}  # this value works for all topologies
    variables |= {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    for name, value in variables.items():
        os.environ.setdefault(name, value)
    os.environ["JAX_PLATFORMS"] = "cpu,cuda" if _has_cuda() else "cpu"
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_autotune_level=0".strip()


def _has_cuda() -> bool:
    from importlib import metadata

    return any(
        plugin.name.startswith("xla_cuda") for plugin in metadata.entry_points(group="jax_plugins")
    )
