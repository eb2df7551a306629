# All launchers source this file in the clone. It sets compiler flags, and the folder of compiled programs.
# Flags that are already set take precedence. If the folder is already set, it is kept.

# Overlap collectives with independent computation, on GPUs and on TPUs.
export XLA_FLAGS="--xla_gpu_enable_latency_hiding_scheduler=true ${XLA_FLAGS:-}"
export LIBTPU_INIT_ARGS="--xla_tpu_enable_latency_hiding_scheduler=true \
--xla_tpu_enable_async_collective_fusion=true --xla_tpu_enable_async_collective_fusion_fuse_all_gather=true \
--xla_tpu_enable_async_collective_fusion_multiple_steps=true --xla_tpu_overlap_compute_collective_tc=true \
--xla_enable_async_all_gather=true ${LIBTPU_INIT_ARGS:-}"

# All hosts share the clone, so each program is compiled only once, even if a run resumes.
export JAX_COMPILATION_CACHE_DIR="${JAX_COMPILATION_CACHE_DIR:-$PWD/build/compiled}"
