r"""XLM-R base (Conneau et al., 2020): masked language modelling on CC-100.

    python -m xlj.train --config=configs/xlm_r_base.py \
        --config.data.mono='/data/cc100/{language}.txt.xz'

From Table 8 of the paper: 12 layers, 768 wide, 12 heads, a vocabulary of 250k pieces, 270M
parameters. From section 3: alpha = 0.3, 1.5M steps of 8,192 sequences. The paper does not state the
learning rate and the settings of Adam; here they are those of RoBERTa base (Liu et al., 2019, Table
9). `:tiny` trains on the embedded corpus.
"""

from xlj import config as schema
from xlj.config import variants

LANGUAGES = (
    "af,am,ar,as,az,be,bg,bn,bn_rom,br,bs,ca,cs,cy,da,de,el,en,eo,es,et,eu,fa,fi,fr,fy,ga,gd,gl,gu,"
    "ha,he,hi,hi_rom,hr,hu,hy,id,is,it,ja,jv,ka,kk,km,kn,ko,ku,ky,la,lo,lt,lv,mg,mk,ml,mn,mr,ms,my,"
    "my_zaw,ne,nl,no,om,or,pa,pl,ps,pt,ro,ru,sa,sd,si,sk,sl,so,sq,sr,su,sv,sw,ta,ta_rom,te,te_rom,"
    "th,tl,tr,ug,uk,ur,ur_rom,uz,vi,xh,yi,zh-Hans,zh-Hant"
)
"""The names of the 100 files of CC-100."""

OWN_SCRIPT = ",".join(name for name in LANGUAGES.split(",") if "_" not in name)
"""The names of the 94 files of CC-100 that are neither romanised nor in the Zawgyi encoding."""


def get_config(variant=""):
    config = schema.default()

    config.data.mono = "data/cc100/{language}.txt.xz"
    config.data.languages = LANGUAGES
    config.data.alpha = 0.3
    config.data.vocabulary_alpha = 0.3
    config.data.vocabulary_size = 250_002
    config.data.length = 512

    config.model.layers = 12
    config.model.hidden = 768
    config.model.heads = 12
    config.model.intermediate = 3072
    config.model.dropout = 0.1
    config.model.attention_dropout = 0.1
    config.model.dtype = "bfloat16"

    config.objectives.mmlm.batch_size = 8192
    config.objectives.mmlm.mask_rate = 0.15

    config.optimizer.learning_rate = 6e-4
    config.optimizer.warmup_steps = 24_000
    config.optimizer.schedule = "linear"
    config.optimizer.b1 = 0.9
    config.optimizer.b2 = 0.98
    config.optimizer.epsilon = 1e-6
    config.optimizer.weight_decay = 0.01

    config.train.steps = 1_500_000
    config.train.gradient_accumulation_steps = 8  # ours; set the number that your devices need
    return variants.apply(config, variant)
