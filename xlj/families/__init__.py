"""Families of encoders: the options of each family, and its folders of Hugging Face.

Each family has one file: a `Family` with the family's options of `model`, the token between the
sentences of a pair, and one `Architecture` for each `model_type` of transformers. The table of
families is in `config/families.py`. Import and export share the table of tensors of an
architecture:

- Usually one parameter corresponds to one tensor. In the layers, xlj stacks one tensor per layer.
- A parameter may be a share of a fused tensor, or may combine several tensors.
- Kernels are transposed: [outputs, inputs] in Hugging Face, [inputs, outputs] in xlj.
- xlj has the rows of word embeddings in a different order, and shifts the rows of position
  embeddings.
"""

from collections.abc import Iterator

from xlj.config.families import load, registered_families
from xlj.families.interface import Architecture, Family


def all_families() -> Iterator[tuple[str, Family]]:
    """Yields the name and the `Family` of each registered family."""
    for name in registered_families():
        yield name, load(name)


def architectures() -> dict[str, Architecture]:
    """Returns the architectures that xlj reads, by `model_type`."""
    return {a.model_type: a for _, family in all_families() for a in family.architectures}


def of_model_type(model_type: str) -> tuple[str, Family]:
    """Returns the name and the `Family` of an architecture."""
    return next(
        (name, family)
        for name, family in all_families()
        if any(model_type == a.model_type for a in family.architectures)
    )


def separators() -> tuple[str, ...]:
    """Returns the separators of all families (`Family.separator`)."""
    return tuple(family.separator for _, family in all_families() if family.separator)
