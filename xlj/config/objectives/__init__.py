"""The options of each objective, a file a kind; `xlj/objectives/` has its mathematics in a file of
the same name. This is the one list of xlj's own."""

from xlj.config.objectives.mlm import CrossAttentionMLM, Masking, MultilingualMLM, TranslationLM

from xlj.config.objectives.btmlm import BackTranslation  # isort: skip  (the order of the schema)
from xlj.config.objectives.rtd import ReplacedTokenDetection  # isort: skip
from xlj.config.objectives.dwa import WordAlignment  # isort: skip
from xlj.config.objectives.xlco import Contrast  # isort: skip
from xlj.config.objectives.retrieval import Retrieval  # isort: skip
from xlj.config.objectives.distillation import Distillation  # isort: skip
from xlj.config.objectives.options import Options, option, register, registered
from xlj.config.objectives.supervised import SUPERVISED, Supervised, supervised_in

__all__ = [
    "SUPERVISED",
    "BackTranslation",
    "Contrast",
    "CrossAttentionMLM",
    "Distillation",
    "Masking",
    "MultilingualMLM",
    "Options",
    "ReplacedTokenDetection",
    "Retrieval",
    "Supervised",
    "TranslationLM",
    "WordAlignment",
    "option",
    "register",
    "registered",
    "supervised_in",
]
