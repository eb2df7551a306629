# What every starter sets, sourced in the clone: flags of compilers, and where compiled programs are kept.
# What is set already goes first, or stays.

# Collectives run beside the computation that does not need them: on GPUs, then on TPUs.
export XLA_FLAGS="--xla_gpu_enable_latency_hiding_scheduler=true ${XLA_FLAGS:-}"
export LIBTPU_INIT_ARGS="--xla_tpu_enable_latency_hiding_scheduler=true \
--xla_tpu_enable_async_collective_fusion=true --xla_tpu_enable_async_collective_fusion_fuse_all_gather=true \
--xla_tpu_enable_async_collective_fusion_multiple_steps=true --xla_tpu_overlap_compute_collective_tc=true \
--xla_enable_async_all_gather=true ${LIBTPU_INIT_ARGS:-}"

# All hosts see the clone, so what one has compiled none compiles again, nor a run that goes on.
export JAX_COMPILATION_CACHE_DIR="${JAX_COMPILATION_CACHE_DIR:-$PWD/build/compiled}"
