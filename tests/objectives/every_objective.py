"""Each objective by name, with its kind of rows, for tests of all objectives."""

from random_rows import CORPUS, rows_of

from xlj.objectives.btmlm import loss as btmlm
from xlj.objectives.btmlm.options import BackTranslation
from xlj.objectives.camlm import loss as camlm
from xlj.objectives.camlm.options import CrossAttentionMLM
from xlj.objectives.contrast import loss as contrast
from xlj.objectives.contrast.options import Retrieval
from xlj.objectives.distillation import loss as distillation
from xlj.objectives.distillation.options import Distillation
from xlj.objectives.dwa import loss as dwa
from xlj.objectives.dwa.options import WordAlignment
from xlj.objectives.mlm import loss as mlm
from xlj.objectives.mlm.options import TranslationLM
from xlj.objectives.rtd import loss as rtd
from xlj.objectives.rtd.options import Generator, TranslationRTD
from xlj.objectives.word_agreement import loss as word_agreement
from xlj.objectives.word_agreement.options import WordAgreement
from xlj.objectives.word_hmm import loss as word_hmm
from xlj.objectives.word_hmm.options import WordHMM
from xlj.objectives.xlco import loss as xlco
from xlj.objectives.xlco.options import CrossLingualContrast

OBJECTIVES = {
    "mlm": (mlm, "pairs", TranslationLM()),
    "camlm": (camlm, "pairs", CrossAttentionMLM()),
    "btmlm": (btmlm, "sentences", BackTranslation()),
    "rtd": (rtd, "pairs", TranslationRTD(generator=Generator(2, "separate"))),
    "dwa": (dwa, "pairs", WordAlignment()),
    "xlco": (xlco, "bitext", CrossLingualContrast(layer=1, queue=40)),
    "retrieval": (contrast, "bitext", Retrieval(layer=2)),
    "word_hmm": (word_hmm, "bitext", WordHMM(layer=1)),
    "word_agreement": (word_agreement, "bitext", WordAgreement(layer=2)),
    "distillation": (distillation, "text", Distillation(language="de")),
}


def objective_and_rows(name, model):
    module, kind, options = OBJECTIVES[name]
    return module.objective(name, options, model, CORPUS), rows_of(kind)
