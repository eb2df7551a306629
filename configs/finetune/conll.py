"""Named entities of CoNLL 2002 and 2003: en, de, es, nl.

Source: ERNIE-M, section 4 and Table 2: five seeds, trained on English, on one language at a time
(variant per_language), or on all languages (variant all). We do not have the paper's Tables 12 and
13 with the hyperparameters. Our values are those of PAN-X, with ERNIE-M's layer-wise decay.

Data: columns with the word first and the entity tag last, in data/conll/LANGUAGE.train,
LANGUAGE.dev and LANGUAGE.test.
"""

from xlj.config.finetuning import default
from xlj.config.variants import choose

LANGUAGES = "en,de,es,nl"


def together(config):
    config.task.languages = LANGUAGES


def per_language(config):
    config.task.languages = LANGUAGES
    config.task.per_language = True


VARIANTS = {"all": together, "per_language": per_language}


def get_config(variant=""):
    config = default()
    task, optimizer, train = config.task, config.optimizer, config.train
    task.kind = "tagging"
    task.train = "data/conll/{language}.train"
    task.dev = "data/conll/{language}.dev"
    task.test = "data/conll/{language}.test"
    task.test_languages = LANGUAGES
    task.length = 256
    optimizer.learning_rate = 2e-5
    optimizer.layer_decay = 0.8
    train.epochs, train.batch_size, train.seeds = 10, 16, 5
    return choose(config, variant, VARIANTS)
