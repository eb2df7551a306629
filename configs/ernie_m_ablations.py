r"""ERNIE-M's ablations (Ouyang et al., 2021, Table 6): XLM-R continued with some objectives.

    python -m xlj.train --config=configs/ernie_m_ablations.py:exp3 \
        --config.init_from=checkpoints/xlm_r_base \
        --config.data.mono='/data/cc100/{language}.txt.xz' \
        --config.data.parallel='/data/parallel/{pair}.tsv.gz'

- `exp1`: MMLM
- `exp2`: MMLM and TLM
- `exp3`: MMLM and CAMLM
- `exp4`: MMLM and CAMLM, then BTMLM
- `exp5`: MMLM, TLM and CAMLM, then BTMLM; ERNIE-M itself, and this file without a variant

Experiment 0 is XLM-R itself. The paper does not state the model size, the batch size and the steps;
here they are those of ernie_m_base.py. `:tiny`, or `:exp3,tiny`, trains on the embedded corpus.
"""

import ernie_m_base

from xlj.config import variants


def without_cross_attention(*off):
    """Returns a variant without CAMLM, BTMLM and the objectives `off`. The model then needs no
    language embeddings, since no token is predicted from another language only."""

    def change(config):
        variants.without("camlm", "btmlm", *off)(config)
        config.model.language_embeddings = "none"

    return change


VARIANTS = {
    "exp1": without_cross_attention("tlm"),
    "exp2": without_cross_attention(),
    "exp3": variants.without("tlm", "btmlm"),
    "exp4": variants.without("tlm"),
    "exp5": variants.without(),
}


def get_config(variant=""):
    return variants.apply(ernie_m_base.get_config(), variant, VARIANTS)
