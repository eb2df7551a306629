"""Named entities of MasakhaNER 2.0 (Adelani et al., 2022): news in 20 African languages.

Source: the scripts of the data set's repository for XLM-R base: 20 epochs, 32 sentences per step,
164 tokens, five seeds, and the learning rate that transformers sets by default, 5e-5. As in the
paper, one model is trained per language, on the data of this language.

Data: the files of MasakhaNER2.0/data in the repository masakhane-io/masakhane-ner, with a word and
its tag per line. Variant: all trains one model on all languages.
"""

from xlj.config.finetuning import default
from xlj.config.variants import choose

LANGUAGES = "bam,bbj,ewe,fon,hau,ibo,kin,lug,luo,mos,nya,pcm,sna,swa,tsn,twi,wol,xho,yor,zul"


def together(config):
    config.task.per_language = False


VARIANTS = {"all": together}


def get_config(variant=""):
    config = default()
    task, optimizer, train = config.task, config.optimizer, config.train
    task.kind = "tagging"
    task.train = "data/masakhaner2/{language}/train.txt"
    task.dev = "data/masakhaner2/{language}/dev.txt"
    task.test = "data/masakhaner2/{language}/test.txt"
    task.languages = LANGUAGES
    task.per_language = True
    task.length = 164
    optimizer.learning_rate = 5e-5
    train.steps, task.batch_size, task.seeds = "20ep", 32, 5
    return choose(config, variant, VARIANTS)
