"""Sharding rules of parameters and activations on a mesh (replica, fsdp), in one table."""

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
"""An array that each device has in full."""

Rules = tuple[tuple[str, PartitionSpec], ...]

RULES: Rules = (
    (r".*(bias|scale)|position_bias/table|.*gates/kernel", REPLICATED),
    (r"embeddings/(word|position|token_type|language)|\w*head/word", TABLE),
    (r"layers/.*/kernel", STACKED_KERNEL),
    (r"\w+_head/.*kernel", KERNEL),
    (r"activations/(hidden|slots)", ROWS),
    (r"activations/microbatches", PartitionSpec(None, *ROWS)),
)
"""(regular expression of an array's name, its axes); the first match applies. A name may have any
prefix: the generator's layers have the same names as the encoder's. Objectives add their own
rules."""


def rule_of(name: str, rules: Rules = RULES) -> tuple[str, PartitionSpec]:
    """Returns the rule of an array.

    Raises:
      ValueError: if no rule matches its name.
    """
    for rule, spec in rules:
        if re.fullmatch(rf"(.*/)?({rule})", name):
            return rule, spec
    raise ValueError(f"no sharding rule matches the array {name}")


OTHERS: Rules = ((r".*", REPLICATED),)
"""The last rule if some parameters may belong to unknown objectives."""

STORED: Rules = (*RULES, *OTHERS)
"""The rules for the parameters of a stored model."""
