"""Each objective by name, with its kind of rows, for tests of all objectives."""

from random_rows import CORPUS, rows_of

from xlj.config.objectives.btmlm import BackTranslation
from xlj.config.objectives.distillation import Distillation
from xlj.config.objectives.dwa import WordAlignment
from xlj.config.objectives.mlm import CrossAttentionMLM, TranslationLM
from xlj.config.objectives.retrieval import Retrieval
from xlj.config.objectives.rtd import Generator, TranslationRTD
from xlj.config.objectives.word_hmm import WordHMM
from xlj.config.objectives.xlco import Contrast
from xlj.objectives import btmlm, camlm, distillation, dwa, mlm, retrieval, rtd, word_hmm, xlco

OBJECTIVES = {
    "mlm": (mlm, "pairs", TranslationLM()),
    "camlm": (camlm, "pairs", CrossAttentionMLM()),
    "btmlm": (btmlm, "sentences", BackTranslation()),
    "rtd": (rtd, "pairs", TranslationRTD(generator=Generator(2, "separate"))),
    "dwa": (dwa, "pairs", WordAlignment()),
    "xlco": (xlco, "bitext", Contrast(layer=1, queue=40)),
    "retrieval": (retrieval, "bitext", Retrieval(layer=2)),
    "word_hmm": (word_hmm, "bitext", WordHMM(layer=1)),
    "distillation": (distillation, "text", Distillation(language="de")),
}


def objective_and_rows(name, model):
    module, kind, options = OBJECTIVES[name]
    return module.objective(name, options, model, CORPUS), rows_of(kind)
