"""Computes the communication that fully sharded training needs in theory, from array sizes.

In ZeRO-3 (Rajbhandari et al., 2020), each microbatch of an objective gathers each kernel (weight
matrix) twice, for the forward and the backward pass, in the type of the computation. It reduces and
scatters the gradient of each kernel in float32. Replicas sum the gradients of their shards once per
step. With `mesh.gather=step`, all parameters are gathered in float32 once per step, and the
gradients are reduced and scattered once.
"""

import math

from xlj.config import Config
from xlj.objectives.flops import layer_weights
from xlj.objectives.logits import BLOCK
from xlj.training.memory import Sizes


def sent(config: Config, sizes: Sizes, devices: int) -> dict[str, float]:
    """Returns the bytes that a device sends in a step of the first phase, by kind of collective.

    Only MMLM and TLM are supported. They read each row once, and have one head over the vocabulary.
    With `mesh.gather=step`, the result has no "all-to-all".

    Args:
      devices: the number of devices.
    """
    model, active = config.model, config.objectives_by_phase[0]
    size, h, share = sizes.corpus.vocabulary_size, model.hidden, config.mesh.fsdp
    copies = devices // share
    linear = model.layers * layer_weights(model)
    block = min(BLOCK, size)
    dense = h * h if model.prediction == "dense" else 0
    # All blocks of the vocabulary have one size; the last one overlaps the previous block.
    head_weights = dense + math.ceil(size / block) * block * h
    kernels = config.train.gradient_accumulation_steps * len(active) * (linear + head_weights)
    tokens = sum(o.batch_size * sizes.lengths[0][o.rows] for o in active.values()) / devices
    width = {"float32": 4, "bfloat16": 2}[model.dtype]
    within, between = (share - 1) / share, (copies - 1) / copies
    tables = size * (1 if model.tied else 2) + model.positions * model.absolute_positions
    parameters = linear + dense + tables * h
    summed = between * 2 * 4 * parameters / share
    if config.mesh.gather == "step":
        once = within * 4 * parameters
        return {"all-gather": once, "reduce-scatter": once, "all-reduce": summed}
    return {
        "all-gather": within * 2 * width * kernels,
        "reduce-scatter": within * 4 * kernels,
        "all-to-all": within
        * 2
        * 4
        * tokens
        * h,  # word embeddings of the tokens, and their gradients
        "all-reduce": summed,
    }
