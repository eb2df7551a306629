"""Maps Hugging Face's architectures to xlj's encoder: config keys and tensor names.

Each family of architectures has its own module with one table, which import and export share. The
table maps parameters of xlj to Hugging Face tensors:

- Usually one parameter corresponds to one tensor. In the layers, xlj stacks one tensor per layer.
- A parameter may be a share of a fused tensor, or may combine several tensors.
- Kernels are transposed: [outputs, inputs] in Hugging Face, [inputs, outputs] in xlj.
- xlj has the rows of word embeddings in a different order, and shifts the rows of position
  embeddings.
"""

from xlj.interop.architectures.configs import (
    ARCHITECTURES,
    MODERN,
    find_architecture,
    make_config,
    read_model,
    shift_positions,
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
    find_task_head,
    has_task_head,
    hf_task_of,
    make_task_config,
    read_labels,
    with_head,
)
from xlj.interop.architectures.xlm_r import BERT, BY_MARKERS, XLJ, XLM_R, XLM_R_XL, with_pad

__all__ = [
    "ARCHITECTURES",
    "BERT",
    "IGNORED",
    "MODERN",
    "BY_MARKERS",
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
    "make_config",
    "make_task_config",
    "has_task_head",
    "read_labels",
    "read_model",
    "find_architecture",
    "hf_task_of",
    "shift_positions",
    "find_task_head",
    "token_types",
    "with_head",
    "with_pad",
]
