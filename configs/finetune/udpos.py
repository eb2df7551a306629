"""Parts of speech (Universal Dependencies, XTREME's 33 languages).

Source: XLM-E, Table 7, and XLM-Align, Table 12: 10 epochs, {8, 16, 32} sentences per step, learning
rate from {1, 2, 3}e-5, warm-up for 10 % of the steps. MetaXLM, Table 8: 32 sentences per step,
learning rate 1e-5 (variant meta_xlm).

Data: XTREME's files, with a word and its tag per line. Variants: meta_xlm, phrasebook (the embedded
corpus).
"""

from xlj.config.finetuning import default
from xlj.config.variants import choose, embedded


def meta_xlm(config):
    config.task.batch_size, config.optimizer.learning_rate = 32, 1e-5


def phrasebook(config):
    embedded("tags", epochs=6, length=32)(config)
    config.optimizer.layer_decay = 0.3  # without it, the model soon memorises English words


VARIANTS = {"meta_xlm": meta_xlm, "phrasebook": phrasebook}


def get_config(variant=""):
    config = default()
    task, optimizer, train = config.task, config.optimizer, config.train
    task.kind = "tagging"
    task.train = "data/xtreme/udpos/train-{language}.tsv"
    task.dev = "data/xtreme/udpos/dev-{language}.tsv"
    task.test = "data/xtreme/udpos/test-{language}.tsv"
    task.test_languages = (
        "af,ar,bg,de,el,en,es,et,eu,fa,fi,fr,he,hi,hu,id,it,ja,kk,ko,mr,nl,pt,ru,ta,te,th,tl,tr,ur,"
        "vi,yo,zh"
    )
    task.metric = "word_class_f1"
    task.length = 128
    optimizer.learning_rate = 2e-5
    train.steps, task.batch_size = "10ep", 16
    return choose(config, variant, VARIANTS)
