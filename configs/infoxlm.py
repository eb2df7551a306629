r"""InfoXLM base (Chi et al., 2021): cross-lingual contrast (XLCO) with MLM and TLM.

    python -m xlj.train --config=configs/infoxlm.py --config.init_from=checkpoints/xlm_r_base \
        --config.data.mono='/data/ccnet/{language}.txt.xz' \
        --config.data.parallel='/data/parallel/{pair}.tsv.gz'

The values are those of the released command (unilm, infoxlm/README.md), since we did not have the
paper itself. The recipe adds XLCO to xlm_r_tlm.py: weight 1, layer 8, a queue of 131,072 keys that
is filled before training, momentum 0.9999, temperature 0.25, mixup contrast, and 15 % of the input
masked.

Our choices are the languages, pairs and alpha (see xlm_r_tlm.py), and that a random side of each
row is the query. A row has two halves of 256 tokens and at most 16 packed pairs, so 256 rows hold
about 2,048 pairs. The first 64 of the 200k steps fill the queue and change no parameter. `:tiny`
trains on the embedded corpus with a queue of 128 keys.
"""

import xlm_r_tlm

from xlj.config import variants


def get_config(variant=""):
    config = xlm_r_tlm.get_config()

    config.objectives.xlco.batch_size = 256
    config.objectives.xlco.layer = 8
    config.objectives.xlco.queue = 131_072
    config.objectives.xlco.momentum = 0.9999
    config.objectives.xlco.temperature = 0.25
    config.objectives.xlco.mixup = True
    config.objectives.xlco.mask_rate = 0.15

    trained = ("mmlm", "tlm", "xlco")
    for name in trained:
        config.objectives[name].weight = 0.0  # while the queue fills: 131,072 / 2,048 steps
    config.phases = {
        "train": {"start_step": 64, "objectives": {name: {"weight": 1.0} for name in trained}}
    }
    return variants.apply(config, variant)
