"""Options of MMLM and TLM."""

from xlj.objectives.masking.options import MaskingOptions


class MultilingualMLM(MaskingOptions):
    """Multilingual masked language modelling (MMLM) on monolingual text."""

    rows = "text"
    implementation = "xlj.objectives.mlm.loss:objective"


class TranslationLM(MaskingOptions):
    """Translation language modelling (TLM, XLM): masked language modelling on sentence pairs."""

    rows = "pairs"
    implementation = "xlj.objectives.mlm.loss:objective"
