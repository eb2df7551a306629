"""Chooses the options of word alignment that neither the user nor the model's config sets.

| model | encode | method |
|---|---|---|
| trained on pairs that are encoded together (TLM, CAMLM, DWA, TRTD) | together | optimal_transport |
| other models | apart | argmax |

The first row has the options of XLM-Align's paper. The second row has the lowest alignment error
rate at the default layer on seven of nine gold sets with multilingual-e5-small; on the other two,
itermax has it (docs/experiments/multilingual_e5.md). The choice is ours.
"""

import dataclasses

from xlj.config.choices import AUTO, AlignmentOptions
from xlj.inference.pretrained import Pretrained
from xlj.models import encoder


def resolve(options: AlignmentOptions, pretrained: Pretrained) -> AlignmentOptions:
    """Returns options in which `method` and `encode` are not `auto`, and `layer` is not -1."""
    together = pretrained.trained_on_pairs
    method = options.method if options.method != AUTO else _method(together)
    encode = options.encode if options.encode != AUTO else _encoding(together)
    layer = encoder.layer_or_middle(options.layer, pretrained.model.layers)
    return dataclasses.replace(options, method=method, encode=encode, layer=layer)


def _method(together: bool) -> str:
    return "optimal_transport" if together else "argmax"


def _encoding(together: bool) -> str:
    return "together" if together else "apart"


def describe(options: AlignmentOptions, pretrained: Pretrained) -> str:
    """Returns a line about resolved options, and the property of the model on which they depend."""
    trained = "was" if pretrained.trained_on_pairs else "was not"
    return (
        f"aligning by {options.method}, sentences encoded {options.encode}, layer {options.layer}; "
        f"the model {trained} trained on pairs that are encoded together"
    )
