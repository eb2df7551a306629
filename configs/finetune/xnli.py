"""XNLI (Conneau et al., 2018): does a premise entail a hypothesis, contradict it, or neither?

Source: XLM-E, Table 7, and XLM-Align, Table 12: 10 epochs, 32 pairs per step, 12,500 steps of
warm-up, learning rate from {5, ..., 8}e-6 (configs/sweeps/finetune_xnli.py). The checkpoint is
selected on the dev sets of all languages. MetaXLM, Table 8: 6 epochs, learning rate 1e-5, warm-up
for 10 % of the steps, weight decay 0.01 (variant meta_xlm). ERNIE-M's fine-tuning scripts decay the
learning rate by layer (variant ernie_m).

Data: XTREME's files. Variants: translate_train (training data of all languages, translated),
ernie_m, meta_xlm, phrasebook (the embedded corpus, for an encoder as small as the quickstart's).
"""

from xlj.config.finetuning import default
from xlj.config.variants import choose, embedded

LANGUAGES = "ar,bg,de,el,en,es,fr,hi,ru,sw,th,tr,ur,vi,zh"


def translate_train(config):
    config.task.languages = LANGUAGES


def ernie_m(config):
    config.optimizer.layer_decay = 0.8


def meta_xlm(config):
    config.optimizer.learning_rate, config.optimizer.weight_decay = 1e-5, 0.01
    config.optimizer.warmup_steps, config.train.epochs = 0, 6


def phrasebook(config):
    embedded("nli", epochs=1, length=48)(config)
    config.task.pairs = "apart"  # the quickstart gives translations similar sentence vectors
    config.model.dropout = 0.0
    config.optimizer.frozen = "embeddings"  # else English drifts away from the other languages


VARIANTS = {
    "translate_train": translate_train,
    "ernie_m": ernie_m,
    "meta_xlm": meta_xlm,
    "phrasebook": phrasebook,
}


def get_config(variant=""):
    config = default()
    task, optimizer, train = config.task, config.optimizer, config.train
    task.kind = "classification"
    task.train = "data/xtreme/xnli/train-{language}.tsv"
    task.dev = "data/xtreme/xnli/dev-{language}.tsv"
    task.test = "data/xtreme/xnli/test-{language}.tsv"
    task.test_languages = LANGUAGES
    task.labels = "contradiction,entailment,neutral"
    task.length = 128
    optimizer.learning_rate = 7e-6
    optimizer.warmup_steps = 12_500
    train.epochs, train.batch_size = 10, 32
    return choose(config, variant, VARIANTS)
