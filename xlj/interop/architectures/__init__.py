"""Names that Hugging Face's architectures have for sizes and parameters of our encoder.

One table serves both ways. A parameter of ours is one tensor of theirs, or, in the layers, one a
layer, stacked; or a share of one, or several of theirs. Kernels are transposed, embeddings of words
and positions have their rows elsewhere. A family has a module of its own.
"""

from xlj.interop.architectures.configs import (
    ARCHITECTURES,
    MODERN,
    config_of,
    model_of,
    of_config,
    shifted,
    token_types,
)
from xlj.interop.architectures.table import (
    IGNORED,
    SURPLUS,
    TOKEN_TYPE,
    WHOLE,
    Architecture,
    Tensor,
)
from xlj.interop.architectures.task_heads import (
    TASKS,
    auto_class,
    config_of_task,
    is_of_task,
    labels_of,
    of_head,
    task_head_of,
    with_head,
)
from xlj.interop.architectures.xlm_r import BERT, OF_MARKERS, XLJ, XLM_R, XLM_R_XL, with_pad

__all__ = [
    "ARCHITECTURES",
    "BERT",
    "IGNORED",
    "MODERN",
    "OF_MARKERS",
    "SURPLUS",
    "TASKS",
    "TOKEN_TYPE",
    "WHOLE",
    "XLJ",
    "XLM_R",
    "XLM_R_XL",
    "Architecture",
    "Tensor",
    "auto_class",
    "config_of",
    "config_of_task",
    "is_of_task",
    "labels_of",
    "model_of",
    "of_config",
    "of_head",
    "shifted",
    "task_head_of",
    "token_types",
    "with_head",
    "with_pad",
]
