"""Maps Hugging Face's architectures to xlj's encoder: config keys and tensor names.

The same tables serve import and export. A parameter of xlj corresponds to one Hugging Face tensor;
a parameter of the layers is stacked from one tensor per layer. Some parameters are a share of a
tensor, or consist of several. Kernels are transposed. Rows of the word and position embeddings are
reordered. Each family of architectures has its own module.
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
