"""Amazon reviews (Prettenhofer and Stein, 2010): good or bad, in en, de, fr, ja; three domains.

Source: MetaXLM, Table 8: 5 epochs, 32 reviews a step, 2e-5, 10 % of warm-up, weight decay 0.01.

Data: a table of review and label a line for each language and split, all domains together (the
paper averages over books, dvd and music: one run with task.train and task.test of each).
"""

from xlj.config.finetuning import default
from xlj.config.variants import choose


def get_config(variant=""):
    config = default()
    task, optimizer, train = config.task, config.optimizer, config.train
    task.kind = "classification"
    task.train = "data/amazon/{language}.train.tsv"
    task.dev = "data/amazon/{language}.dev.tsv"
    task.test = "data/amazon/{language}.test.tsv"
    task.test_languages = "en,de,fr,ja"
    task.length = 256
    optimizer.learning_rate, optimizer.weight_decay = 2e-5, 0.01
    train.epochs, train.batch_rows = 5, 32
    return choose(config, variant, {})
