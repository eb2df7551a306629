"""Options of denoising word alignment (DWA) with TLM (XLM-Align)."""

import dataclasses

from xlj.config.fields import Unused, lookup
from xlj.config.objectives import option, while_on
from xlj.config.sections import Sections
from xlj.objectives.mlm.options import Masking


def _while_pointing(config: Sections, path: str) -> Unused | None:
    """Checks that the objective is on and has queries."""
    queries = f"{path.rpartition('.')[0]}.queries"
    if lookup(config, queries) == "none":
        return while_on(config, path) or Unused(f"{queries} is none", allowed_in_recipes=True)
    return while_on(config, path)


def _while_filtering(config: Sections, path: str) -> Unused | None:
    """Checks that the objective is on, has queries, and filters the labels."""
    filtering = f"{path.rpartition('.')[0]}.filtering"
    if not lookup(config, filtering):
        return while_on(config, path) or Unused(f"{filtering} is False", allowed_in_recipes=True)
    return _while_pointing(config, path)


@dataclasses.dataclass(frozen=True)
class WordAlignment(Masking):
    """Denoising word alignment (DWA) and TLM in the same forward pass (XLM-Align)."""

    rows = "pairs"
    implementation = "xlj.objectives.dwa.loss:objective"

    weight: float = option(1.0, "weight of the TLM loss", low=0)
    alignment_weight: float = option(
        1.0, "weight of the word alignment loss", _while_pointing, low=0
    )
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
    filtering_alpha: float = option(
        0.9,
        "number by which later iterations of filtering multiply the similarity of two tokens, if "
        "one of the two already has a link (Equation 9)",
        _while_filtering,
        low=0,
        high=1,
    )
    filtering_iterations: int = option(
        2, "number of iterations of filtering (Equation 8)", _while_filtering, low=1
    )
    sinkhorn_iterations: int = option(
        2, "number of iterations of Sinkhorn's algorithm", _while_pointing, low=1
    )
    sinkhorn_first: str = option(
        "columns",
        "what each Sinkhorn iteration normalises first. columns: as the released code; rows: as "
        "Equation 6",
        _while_pointing,
        choices=("columns", "rows"),
    )
    sinkhorn_mu: float = option(
        1.0,
        "weight mu of the entropy of the transport plan (Equations 3 and 5)",
        _while_pointing,
        low=0.1,
    )
    queries: str = option(
        "masked",
        "tokens that the pointer network points from. masked: labelled tokens that are masked; "
        "unmasked: labelled tokens that are not masked; aligned: one token of each link; none: no "
        "word alignment",
        choices=("masked", "unmasked", "aligned", "none"),
    )
