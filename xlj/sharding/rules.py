"""Sharding rules of parameters and activations on a mesh (replica, fsdp), in one table."""

import re

from jax.sharding import PartitionSpec

AXES = ("replica", "fsdp")
"""Axes of the mesh: copies of the parameters, and the devices that share one copy."""

ROWS = PartitionSpec(AXES)
"""An array [rows, ...] of a batch, split along the rows over all devices."""

KERNEL = PartitionSpec("fsdp", None)
"""A kernel [inputs, outputs], split along the inputs."""

STACKED_KERNEL = PartitionSpec(None, *KERNEL)
"""The kernels of all layers [layers, inputs, outputs], split along the inputs."""

TABLE = PartitionSpec(None, "fsdp")
"""A table of embeddings [ids, hidden], split along the hidden size."""

REPLICATED = PartitionSpec()
"""An array that each device has in full."""

Rules = tuple[tuple[str, PartitionSpec], ...]
"""Pairs (regular expression over an array's name, its partition specification)."""

RULES: Rules = (
    (r".*(bias|scale)|position_bias/table|.*gates/kernel", REPLICATED),
    (r"embeddings/(word|position|token_type|language)|\w*head/word", TABLE),
    (r"layers/.*/kernel", STACKED_KERNEL),
    (r"\w+_head/.*kernel", KERNEL),
    (r"activations/(hidden|slots)", ROWS),
    (r"activations/microbatches", PartitionSpec(None, *ROWS)),
)
"""Sharding rules for all models; the first match applies. A rule also matches names with a prefix,
such as `generator/layers/...`. Objectives add rules for their own arrays (`Objective.rules`)."""


def rule_of(name: str, rules: Rules = RULES) -> tuple[str, PartitionSpec]:
    """Returns the first rule that matches an array: (regular expression, specification).

    Args:
      name: of the array, e.g. `layers/attention/query/kernel`.

    Raises:
      ValueError: if no rule matches the name.
    """
    for rule, spec in rules:
        if re.fullmatch(rf"(.*/)?({rule})", name):
            return rule, spec
    raise ValueError(
        f"no sharding rule matches the array {name}; add one to the `rules` of its objective"
    )


OTHERS: Rules = ((r".*", REPLICATED),)
"""A last rule that replicates all other arrays, for trees with parameters of unknown objectives."""

STORED: Rules = (*RULES, *OTHERS)
"""The rules for the parameters of a stored model."""
