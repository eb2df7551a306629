"""Options of denoising word alignment (DWA) with TLM (XLM-Align)."""

import dataclasses

from xlj.config.fields import Unused, lookup
from xlj.config.objectives import option, while_on
from xlj.config.sections import Sections
from xlj.objectives.masking.options import MaskingOptions


def _while_pointing(config: Sections, path: str) -> Unused | None:
    """Checks that the objective is on and has queries."""
    queries = f"{path.rpartition('.')[0]}.queries"
    if lookup(config, queries) == "none":
        return while_on(config, path) or Unused(f"{queries} is none", allowed_in_recipes=True)
    return while_on(config, path)


@dataclasses.dataclass(frozen=True)
class WordAlignment(MaskingOptions):
    """Denoising word alignment (DWA) and TLM in the same forward pass (XLM-Align)."""

    rows = "pairs"
    implementation = "xlj.objectives.dwa.loss:objective"
    alignment_weight = 1.0
    """Weight of the word alignment loss."""
    filtering_alpha = 0.9
    """Number by which later iterations of filtering multiply the similarity of two tokens, if one
    of the two already has a link (Equation 9)."""
    filtering_iterations = 2
    """Number of iterations of filtering (Equation 8)."""
    sinkhorn_mu = 1.0
    """Weight mu of the entropy of the transport plan (Equations 3 and 5)."""
    sinkhorn_first = "columns"
    """What each Sinkhorn iteration normalises first: columns, as the released code. Equation 6
    starts with the rows."""

    weight: float = option(1.0, "weight of the TLM loss", low=0)
    label_layer: int = option(
        -1,
        "layer whose vectors produce the alignment labels; 0: the embeddings, -1: the layer at two "
        "thirds of the depth",
        _while_pointing,
        low=-1,
    )
    query_layer: int = option(
        -1,
        "layer whose vectors the pointer network reads; 0: the embeddings, -1: the last",
        _while_pointing,
        low=-1,
    )
    filtering: bool = option(
        True,
        "whether labels come from iterative filtering (itermax); if false, labels are the union of "
        "the argmaxes of both directions",
        _while_pointing,
    )
    sinkhorn_iterations: int = option(
        2, "number of iterations of Sinkhorn's algorithm", _while_pointing, low=1
    )
    queries: str = option(
        "masked",
        "tokens that the pointer network points from. masked: labelled tokens that are masked; "
        "unmasked: labelled tokens that are not masked; aligned: one token of each link; none: no "
        "word alignment",
        choices=("masked", "unmasked", "aligned", "none"),
    )
