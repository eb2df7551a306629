"""Chooses the options of word alignment that neither the user nor the model's config sets.

| model | encode | method |
|---|---|---|
| with the head of word links | together | word_links |
| trained on pairs that are encoded together, as in TLM | together | optimal_transport |
| other models | apart | argmax |

The second row has the options of XLM-Align's paper. The third row has the lowest alignment error
rate at the default layer on seven of nine gold sets with multilingual-e5-small; on the other two,
itermax has it (docs/experiments/multilingual_e5.md). The choice is ours.
"""

import dataclasses

from xlj.config.choices import AUTO, AlignmentOptions
from xlj.inference.pretrained import Pretrained
from xlj.models import encoder
from xlj.objectives.supervised import word_links
from xlj.word_alignment.methods import Method

THRESHOLD = 0.3
"""The threshold of word links if the model stores none: it was trained without dev data (ours)."""


def resolve(options: AlignmentOptions, pretrained: Pretrained) -> AlignmentOptions:
    """Returns options in which `method` and `encode` are not `auto`, and `layer` is not -1."""
    has_head, together = word_links.HEAD in pretrained.params, pretrained.trained_on_pairs
    method, encode = options.method, options.encode
    if method == AUTO:
        trained = "word_links" if has_head else "optimal_transport"
        method = trained if has_head or together else "argmax"
    if encode == AUTO:
        encode = "together" if has_head or together else "apart"
    layer = encoder.layer_or_middle(options.layer, pretrained.model.layers)
    return dataclasses.replace(options, method=method, encode=encode, layer=layer)


def threshold(method: Method, pretrained: Pretrained) -> float:
    """Returns the minimum confidence of a link for a method, if the user sets none."""
    if method.head != word_links.HEAD:
        return 0.0
    return (pretrained.task.threshold if pretrained.task else 0.0) or THRESHOLD


def describe(options: AlignmentOptions, pretrained: Pretrained) -> str:
    """Returns a line about resolved options, and the property of the model on which they depend."""
    trained = "was trained" if pretrained.trained_on_pairs else "was not trained"
    reason = f"the model {trained} on pairs that are encoded together"
    if word_links.HEAD in pretrained.params:
        reason = "the model was trained on word links"
    return (
        f"aligning by {options.method}, sentences encoded {options.encode}, layer {options.layer}; "
        f"{reason}"
    )
