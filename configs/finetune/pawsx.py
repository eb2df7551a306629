"""PAWS-X (Yang et al., 2019): do two sentences with similar words have the same meaning?

Source: XLM-E, Table 7: 10 epochs, 32 pairs per step, learning rate from {8, 9, 10, 20}e-6
(XLM-Align, Table 12: {1, 2}e-5), warm-up for 10 % of the steps. MetaXLM, Table 8: learning rate
2e-5, weight decay 0.01 (variant meta_xlm).

Data: XTREME's files. Variants: translate_train (training data of all languages, translated),
meta_xlm, tfds (data from TensorFlow Datasets), phrasebook (the embedded corpus).
"""

from xlj.config.finetuning import default
from xlj.config.variants import choose, embedded

LANGUAGES = "de,en,es,fr,ja,ko,zh"


def translate_train(config):
    config.task.languages = LANGUAGES


def meta_xlm(config):
    config.optimizer.learning_rate, config.optimizer.weight_decay = 2e-5, 0.01


def tfds(config):
    config.task.train = "tfds:paws_x_wiki/{language}#train"
    config.task.dev = "tfds:paws_x_wiki/{language}#validation"
    config.task.test = "tfds:paws_x_wiki/{language}#test"
    config.task.labels = "different_meaning,paraphrase"  # the names of 0 and 1 in TFDS


VARIANTS = {
    "translate_train": translate_train,
    "meta_xlm": meta_xlm,
    "tfds": tfds,
    "phrasebook": embedded("paraphrases", epochs=10, length=64),
}


def get_config(variant=""):
    config = default()
    task, optimizer, train = config.task, config.optimizer, config.train
    task.kind = "classification"
    task.train = "data/xtreme/pawsx/train-{language}.tsv"
    task.dev = "data/xtreme/pawsx/dev-{language}.tsv"
    task.test = "data/xtreme/pawsx/test-{language}.tsv"
    task.test_languages = LANGUAGES
    task.labels = "0,1"
    task.length = 128
    optimizer.learning_rate = 1e-5
    train.epochs, train.batch_size = 10, 32
    return choose(config, variant, VARIANTS)
