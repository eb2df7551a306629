"""How arrays lie on a mesh (replica, fsdp): one table of rules for parameters and activations."""

import re

from jax.sharding import PartitionSpec

AXES = ("replica", "fsdp")

ROWS = PartitionSpec(AXES)
"""The leading axis of every batch is split over all devices."""

KERNEL = PartitionSpec("fsdp", None)
"""A kernel [inputs, outputs], split along the inputs."""

STACKED_KERNEL = PartitionSpec(None, *KERNEL)
"""Kernels of all layers [layers, inputs, outputs]."""

TABLE = PartitionSpec(None, "fsdp")
"""A table of embeddings [ids, hidden], split along the hidden size."""

REPLICATED = PartitionSpec()
"""An array of which each device has all."""

Rules = tuple[tuple[str, PartitionSpec], ...]

RULES: Rules = (
    (r".*(bias|scale)|position_bias/table|.*gates/kernel", REPLICATED),
    (r"embeddings/(word|position|token_type|language)|\w*head/word", TABLE),
    (r"layers/.*/kernel", STACKED_KERNEL),
    (r"\w+_head/.*kernel", KERNEL),
    (r"activations/(hidden|slots)", ROWS),
    (r"activations/microbatches", PartitionSpec(None, *ROWS)),
)
"""(regular expression over an array's name, its axes); the first that matches holds. A name may
have any parts before: the generator's layers are named as the encoder's are. An objective adds
rules of its own."""


def rule_of(name: str, rules: Rules = RULES) -> tuple[str, PartitionSpec]:
    """The rule that names an array.

    Raises:
      ValueError: if none does.
    """
    for rule, spec in rules:
        if re.fullmatch(rf"(.*/)?({rule})", name):
            return rule, spec
    raise ValueError(f"no partitioning rule names the array {name}")


OTHERS: Rules = ((r".*", REPLICATED),)
"""The last rule where objectives may be unknown that parameters belong to."""

STORED: Rules = (*RULES, *OTHERS)
"""The rules for the parameters of a stored model."""
