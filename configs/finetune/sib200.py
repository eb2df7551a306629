"""Topics of sentences in SIB-200 (Adelani et al., 2024): seven topics, 205 languages of FLORES.

Not run: we do not have the data. Tests read its layout.

Source: the script xlmr_zero.sh of the data set's repository: trained on English, 20 epochs, 32
sentences per step, 164 tokens, learning rate 1e-5.

Data: the folders of data/annotated in the repository dadelani/sib-200. `task.test_languages` has
the 205 codes of the folders to choose from; the default is a sample of 24. Variant: all trains one
model on the languages of the sample.
"""

from xlj.config.finetuning import default
from xlj.config.variants import choose

LANGUAGES = (
    "eng_Latn,arb_Arab,bam_Latn,ben_Beng,bul_Cyrl,deu_Latn,ell_Grek,fra_Latn,hau_Latn,hin_Deva,"
    "ibo_Latn,kin_Latn,rus_Cyrl,spa_Latn,swh_Latn,tha_Thai,tur_Latn,urd_Arab,vie_Latn,wol_Latn,"
    "xho_Latn,yor_Latn,zho_Hans,zul_Latn"
)


def together(config):
    config.task.languages = LANGUAGES


VARIANTS = {"all": together}


def get_config(variant=""):
    config = default()
    task, optimizer, train = config.task, config.optimizer, config.train
    task.kind = "classification"
    task.train = "data/sib200/{language}/train.tsv"
    task.dev = "data/sib200/{language}/dev.tsv"
    task.test = "data/sib200/{language}/test.tsv"
    task.columns = "text,category"
    task.languages = "eng_Latn"
    task.test_languages = LANGUAGES
    task.length = 164
    optimizer.learning_rate = 1e-5
    train.steps, task.batch_size = "20ep", 32
    return choose(config, variant, VARIANTS)
