"""Options of MMLM, TLM and CAMLM."""

from xlj.config.objectives.masking import MaskingOptions
from xlj.config.objectives.options import register


@register("mmlm")
class MultilingualMLM(MaskingOptions):
    """Multilingual masked language modelling (MMLM) on monolingual text."""

    rows = "text"
    implementation = "xlj.objectives.mlm:objective"


@register("tlm")
class TranslationLM(MaskingOptions):
    """Translation language modelling (TLM, XLM): masked language modelling on sentence pairs."""

    rows = "pairs"
    implementation = "xlj.objectives.mlm:objective"


@register("camlm")
class CrossAttentionMLM(MaskingOptions):
    """Cross-attention masked language modelling (CAMLM, ERNIE-M): predicts the selected tokens of a
    sentence from its translation only."""

    rows = "pairs"
    implementation = "xlj.objectives.camlm:objective"
    reads = ("model.language_embeddings",)
