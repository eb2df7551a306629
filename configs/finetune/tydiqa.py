"""TyDiQA-GoldP (Clark et al., 2020): questions of native speakers, nine languages.

Source: XLM-E, Table 7: trained on the English part, {10, 20, 40} epochs, 32 windows per step,
learning rate from {2, 3, 4}e-5, warm-up for 10 % of the steps. XLM-Align, Table 12: {5, 10, 15, 20}
epochs, learning rate from {2, 3}e-5. MetaXLM, Table 8: 40 epochs, 4e-5 (variant meta_xlm).

XTREME scores the dev sets, so there is no data to select a checkpoint. The last checkpoint is
scored.
"""

from xquad import get_config as of_xquad

from xlj.config.variants import choose


def meta_xlm(config):
    config.train.steps, config.optimizer.learning_rate = "40ep", 4e-5


VARIANTS = {"meta_xlm": meta_xlm}


def get_config(variant=""):
    config = of_xquad()
    config.task.train = "data/xtreme/tydiqa/tydiqa-goldp-v1.1-train/tydiqa.{language}.train.json"
    config.task.dev = config.task.dev_languages = ""
    config.task.select = "last"
    config.task.test = "data/xtreme/tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{language}.dev.json"
    config.task.test_languages = "ar,bn,en,fi,id,ko,ru,sw,te"
    config.train.steps = "20ep"
    return choose(config, variant, VARIANTS)
