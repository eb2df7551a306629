"""What fully sharded training must send, counted from the sizes of arrays.

ZeRO-3 (Rajbhandari et al., 2020): each kernel is gathered for the forward and for the backward
pass, in the type that it is multiplied in, and its gradient is summed in float32, each device
keeping its slice; copies of the parameters sum their slices once a step. With `mesh.gather=step`
all parameters are gathered once, in float32, and their gradients summed once.
"""

import math

from xlj.config import Config
from xlj.objectives.flops import layer_weights
from xlj.objectives.logits import BLOCK
from xlj.training.memory import Sizes


def sent(config: Config, sizes: Sizes, devices: int) -> dict[str, float]:
    """Bytes that a device sends in a step of the first phase, by kind of exchange.

    Of objectives that read each row once, with one head over the vocabulary: MMLM and TLM.
    """
    model, active = config.model, config.objectives_by_phase[0]
    size, h, share = sizes.corpus.vocabulary_size, model.hidden, config.mesh.fsdp
    copies = devices // share
    linear = model.layers * layer_weights(model)
    block = min(BLOCK, size)
    dense = h * h if model.prediction == "dense" else 0
    of_head = dense + math.ceil(size / block) * block * h  # the last block is moved, not shorter
    kernels = config.train.accumulation * len(active) * (linear + of_head)
    tokens = sum(o.batch_rows * sizes.lengths[0][o.rows] for o in active.values()) / devices
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
        "all-to-all": within * 2 * 4 * tokens * h,  # vectors that were looked up, their gradients
        "all-reduce": summed,
    }
