"""Named entities of WikiAnn (PAN-X; Rahimi et al., 2019, in XTREME's 40 languages).

Source: XLM-E, Table 7, and XLM-Align, Table 12: 10 epochs, 8 sentences per step, learning rate from
{5, ..., 9}e-6 (configs/sweeps/finetune_panx.py), warm-up for 10 % of the steps. MetaXLM, Table 8:
learning rate 7e-6, which is the default here.

Data: XTREME's files, with a word and its tag per line. Variants: per_language trains one model per
language, on the data of this language; tfds reads the data from TensorFlow Datasets.
"""

from xlj.config.finetuning import default
from xlj.config.variants import choose

LANGUAGES = (
    "af,ar,bg,bn,de,el,en,es,et,eu,fa,fi,fr,he,hi,hu,id,it,ja,jv,ka,kk,ko,ml,mr,ms,my,nl,pt,ru,sw,"
    "ta,te,th,tl,tr,ur,vi,yo,zh"
)


def per_language(config):
    config.task.languages = LANGUAGES
    config.task.per_language = True


def tfds(config):
    config.task.train = "tfds:wikiann/{language}#train"
    config.task.dev = "tfds:wikiann/{language}#validation"
    config.task.test = "tfds:wikiann/{language}#test"


VARIANTS = {"per_language": per_language, "tfds": tfds}


def get_config(variant=""):
    config = default()
    task, optimizer, train = config.task, config.optimizer, config.train
    task.kind = "tagging"
    task.train = "data/xtreme/panx/train-{language}.tsv"
    task.dev = "data/xtreme/panx/dev-{language}.tsv"
    task.test = "data/xtreme/panx/test-{language}.tsv"
    task.test_languages = LANGUAGES
    task.length = 128
    optimizer.learning_rate = 7e-6
    train.epochs, train.batch_size = 10, 8
    return choose(config, variant, VARIANTS)
