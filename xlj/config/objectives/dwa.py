"""DWA with TLM, of XLM-Align."""

import dataclasses

from xlj.config.fields import Unused, lookup
from xlj.config.objectives.mlm import Masking
from xlj.config.objectives.options import option, register, while_on
from xlj.config.sections import Sections


def _while_pointing(config: Sections, path: str) -> Unused | None:
    """Says that a key is read while the objective is on and has queries."""
    queries = f"{path.rpartition('.')[0]}.queries"
    if lookup(config, queries) == "none":
        return while_on(config, path) or Unused(f"{queries} is none", allowed_in_recipes=True)
    return while_on(config, path)


def _while_filtering(config: Sections, path: str) -> Unused | None:
    """Says that a key is read while the labels are filtered."""
    if not lookup(config, f"{path.rpartition('.')[0]}.filtering"):
        return while_on(config, path) or Unused("filtering is False", allowed_in_recipes=True)
    return _while_pointing(config, path)


@register("dwa")
@dataclasses.dataclass(frozen=True)
class WordAlignment(Masking):
    """XLM-Align: TLM, and denoising word alignment (DWA) in the same forward pass."""

    rows = "pairs"
    implementation = "xlj.objectives.dwa:objective"

    alignment_weight: float = option(
        1.0, "weight of the word alignment loss", _while_pointing, low=0
    )
    label_layer: int = option(
        -1,
        "layer whose vectors label the alignments, 0 is the embeddings; -1 means two thirds of the "
        "layers",
        _while_pointing,
        low=-1,
    )
    query_layer: int = option(
        -1,
        "layer that the pointer network reads, 0 is the embeddings; -1 means the last",
        _while_pointing,
        low=-1,
    )
    filtering: bool = option(
        True,
        "label by iterative filtering (itermax); else by the union of both argmaxes",
        _while_pointing,
    )
    filtering_alpha: float = option(
        0.9,
        "factor of similarities in later iterations of filtering where one token has a link "
        "(Equation 9)",
        _while_filtering,
        low=0,
        high=1,
    )
    filtering_iterations: int = option(
        2, "iterations of filtering (Equation 8)", _while_filtering, low=1
    )
    sinkhorn_iterations: int = option(
        2, "iterations of Sinkhorn's algorithm", _while_pointing, low=1
    )
    sinkhorn_first: str = option(
        "columns",
        "what an iteration of Sinkhorn's algorithm normalises first: the columns, as released, or "
        "the rows (Equation 6)",
        _while_pointing,
        choices=("columns", "rows"),
    )
    sinkhorn_mu: float = option(
        1.0, "weight mu of the plan's entropy (Equations 3 and 5)", _while_pointing, low=0.1
    )
    queries: str = option(
        "masked",
        "what is pointed from: labelled tokens that are masked, or unmasked; a token of each link "
        "('aligned'); or none",
        choices=("masked", "unmasked", "aligned", "none"),
    )
