r"""XLM-E (Chi et al., 2022): replaced token detection on text (MRTD) and translations (TRTD).

    python -m xlj.train --config=configs/xlm_e.py \
        --config.data.mono='/data/cc100/{language}.txt.xz' \
        --config.data.parallel='/data/parallel/{pair}.tsv.gz'

From section 4.1, Appendix A and Table 6:

- a generator of 4 layers and a discriminator of 12 layers, both 768 wide with 12 heads, from
  scratch
- lambda = 50
- 125k steps of about 1M tokens for each objective (MRTD: 2,048 rows of 512 tokens)
- Adam with betas (0.9, 0.98) and epsilon 1e-6, peak rate 5e-4, 10k steps of warm-up, linear decay,
  clipping at 2.0, weight decay 0.01
- text of CC-100 with alpha = 0.7, and XLM-R's vocabulary
- a gated relative position bias (section 3.3)
- in the generator's input, every selected token becomes <mask> (sections 2 and 3.1)

Variants:

- `without_trtd`: the ablation of section 4.2, on text only
- `mmlm_tlm`: the baseline of Figure 1, "XLM-R augmented with translation language modeling, using
  the same corpora and code base". It is XLM-R's model with MMLM and TLM in place of MRTD and TRTD.
  The paper gives no other details, so all other values are the same (ours)

The paper does not state the following values, which are ours:

- mask rate 15 % (as ELECTRA base), dropout 0.1 (as COCO-LM)
- shared embeddings and temperature 1 (as ELECTRA)
- the buckets of the position bias, and the use of absolute positions (docs/fidelity.md)
- the pairs: the paper has "translation pairs in 100 languages"; here English is paired with each
  other language whose file in CC-100 is neither romanised nor in Zawgyi
- a vocabulary of 250,002 pieces is trained, unless `data.vocabulary` names XLM-R's vocabulary

A row of TRTD has 512 tokens and several pairs, so a step has about 1M tokens of pairs. `:tiny`
trains on the embedded corpus.
"""

import xlm_r_base

from xlj.config import variants


def mmlm_tlm(config):
    for name in ("mmlm", "tlm"):
        config.objectives[name].batch_size = config.objectives.mrtd.batch_size
    variants.without("mrtd", "trtd")(config)
    config.model.position_bias = "none"


VARIANTS = {"without_trtd": variants.without("trtd"), "mmlm_tlm": mmlm_tlm}


def get_config(variant=""):
    config = xlm_r_base.get_config()

    others = [name for name in xlm_r_base.OWN_SCRIPT.split(",") if name != "en"]
    config.data.parallel = "data/parallel/{pair}.tsv.gz"
    config.data.pairs = ",".join(f"en-{name}" for name in others)
    config.data.alpha = 0.7
    config.data.pair_length = 512

    config.model.position_bias = "gated"

    config.objectives.mmlm.batch_size = 0
    for objective in (config.objectives.mrtd, config.objectives.trtd):
        objective.batch_size = 2048
        objective.mask_rate = 0.15
        objective.mask_share = 1.0
        objective.random_share = 0.0
        objective.weight = 50.0
        objective.temperature = 1.0
        objective.generator_layers = 4
        objective.generator_embeddings = "shared"

    config.optimizer.learning_rate = 5e-4
    config.optimizer.warmup_steps = 10_000
    config.optimizer.clip_norm = 2.0

    config.train.steps = 125_000
    return variants.apply(config, variant, VARIANTS)
