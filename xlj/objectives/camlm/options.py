"""Options of CAMLM (ERNIE-M)."""

from xlj.objectives.masking.options import MaskingOptions


class CrossAttentionMLM(MaskingOptions):
    """Cross-attention masked language modelling (CAMLM, ERNIE-M): predicts the selected tokens of a
    sentence from its translation only."""

    rows = "pairs"
    implementation = "xlj.objectives.camlm.loss:objective"
    reads = ("model.language_embeddings",)
