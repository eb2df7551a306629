"""Parts of speech of MasakhaPOS (Dione et al., 2023): news in 20 African languages.

Source: the scripts of the data set's repository for XLM-R: 20 epochs, 32 sentences per step, 200
tokens, five seeds, and the learning rate that transformers sets by default, 5e-5. The score is the
accuracy. One model is trained per language, on the data of this language.

Data: the files of the folder data in the repository masakhane-io/masakhane-pos, with a word and its
tag per line. Variant: all trains one model on all languages.
"""

from masakhaner2 import VARIANTS
from masakhaner2 import get_config as of_masakhaner2

from xlj.config.variants import choose


def get_config(variant=""):
    config = of_masakhaner2()
    task = config.task
    task.train = "data/masakhapos/{language}/train.txt"
    task.dev = "data/masakhapos/{language}/dev.txt"
    task.test = "data/masakhapos/{language}/test.txt"
    task.metric = "tag_accuracy"
    task.labels = (  # a rare tag may be missing in the training data of a language
        "ADJ,ADP,ADV,AUX,CCONJ,DET,INTJ,NOUN,NUM,PART,PRON,PROPN,PUNCT,SCONJ,SYM,VERB,X"
    )
    task.length = 200
    return choose(config, variant, VARIANTS)
