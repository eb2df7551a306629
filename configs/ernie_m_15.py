r"""ERNIE-M with 15 languages (Ouyang et al., 2021, section 4): base size, languages of XNLI.

    python -m xlj.train --config=configs/ernie_m_15.py --config.init_from=checkpoints/xlm_r_base \
        --config.data.mono='/data/cc100/{language}.txt.xz' \
        --config.data.parallel='/data/parallel/{pair}.tsv.gz'

The paper pretrains on 15 languages, "the same as that of HICTL", for a comparison on XNLI. It
states neither the languages nor the size of the model. Our choice is the 15 languages of XNLI and
the base size. All other values are those of ernie_m_base.py. `:tiny` trains on the embedded corpus.
"""

import ernie_m_base
import xlm

from xlj.config import variants


def get_config(variant=""):
    config = ernie_m_base.get_config()
    config.data.languages = xlm.LANGUAGES.replace("zh", "zh-Hans")
    return variants.apply(config, variant)
