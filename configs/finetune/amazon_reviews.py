"""Amazon reviews (Prettenhofer and Stein, 2010): good or bad, in en, de, fr, ja; three domains.

Source: MetaXLM, Table 8: 5 epochs, 32 reviews per step, learning rate 2e-5, warm-up for 10 % of the
steps, weight decay 0.01.

Data: for each language and split, a table with a review and a label per line. The reviews are from
all domains, or from one domain (configs/sweeps/finetune_amazon_domains.py). Variant: per_language
trains one model per language, on the data of this language (section 4.3).
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
    train.epochs, train.batch_size = 5, 32
    return choose(config, variant, VARIANTS)
