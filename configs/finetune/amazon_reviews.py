"""Amazon reviews (Prettenhofer and Stein, 2010): good or bad, in en, de, fr, ja; three domains.

Source: MetaXLM, Table 8: 5 epochs, 32 reviews per step, 2e-5, 10 % of warm-up, weight decay 0.01.

Data: for each language and split a table with a review and a label per line, of all domains or of
one domain (configs/sweeps/finetune_amazon_domains.py). Variant: per_language (one model per
language, trained on that language: section 4.3).
"""

from xlj.config.finetuning import default
from xlj.config.variants import choose

LANGUAGES = "en,de,fr,ja"


def per_language(config):
    config.task.languages = LANGUAGES
    config.task.per_language = True


VARIANTS = {"per_language": per_language}


def get_config(variant=""):
    config = default()
    task, optimizer, train = config.task, config.optimizer, config.train
    task.kind = "classification"
    task.train = "data/amazon/{language}.train.tsv"
    task.dev = "data/amazon/{language}.dev.tsv"
    task.test = "data/amazon/{language}.test.tsv"
    task.test_languages = LANGUAGES
    task.length = 256
    optimizer.learning_rate, optimizer.weight_decay = 2e-5, 0.01
    train.epochs, train.batch_rows = 5, 32
    return choose(config, variant, VARIANTS)
