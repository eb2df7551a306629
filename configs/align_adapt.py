r"""A word aligner from any pretrained encoder and sentence pairs, without links (ours).

    python -m xlj.train --config=configs/align_adapt.py --workdir=runs/align_adapt \
        --config.init_from=DIR --config.data.parallel='my.{pair}.tsv' --config.data.pairs=en-fr
    python -m xlj.align --checkpoint=runs/align_adapt --input=pairs.tsv --output=links.txt

After Dou and Neubig (2021): TLM, and self-training on links that both directions agree on, with
consistency of the directions (`objectives.word_agreement`). The sizes of the model are those of
`init_from`. The embeddings are frozen, which makes steps on CPUs faster and keeps words of other
languages. Several language pairs can train one model.

The checkpoint stores the method `argmax`, which links pieces that both directions rank first, and
`apart`. The layer and the checkpoint are chosen without gold links: by the highest
`eval/word_alignment/agreement`, the share of held-out pieces that have a link on which both
directions agree. To train this layer, set `objectives.word_agreement.layer` to the value of
`eval/word_alignment/layer` at step 0. The run ends after three evaluations without a higher
agreement (`train.patience`). To log the alignment error rate too, set
`evaluation.alignment.source`. To choose the checkpoint by gold links, set
`train.best_metric=-eval/word_alignment/aer`.

Variants: `self_training` (without TLM, whose loss over a large vocabulary takes most of the time on
CPUs), `tiny` (from scratch on the embedded corpus).
"""

from xlj import config as schema
from xlj.config import variants

VARIANTS = {"self_training": variants.without("tlm")}


def get_config(variant=""):
    config = schema.default()
    config.init_from = "checkpoints/xlm-roberta-base"
    config.transfer.model = "init_from"

    config.data.pairs = "en-fr"
    config.data.parallel = "corpus/{pair}.tsv"
    config.data.pair_length = 128
    config.data.held_out_share = 0.01

    config.model.dtype = "auto"

    config.objectives.tlm.batch_size = 4
    config.objectives.word_agreement.batch_size = 16

    config.optimizer.learning_rate = 2e-5
    config.optimizer.warmup_steps = 20
    config.optimizer.schedule = "linear"
    config.optimizer.clip_norm = 1.0
    config.optimizer.frozen = "embeddings"

    config.evaluation.alignment.method = "argmax"
    config.evaluation.alignment.encode = "apart"
    config.evaluation.alignment.agreement = True

    config.train.steps = 500
    config.train.log_every = 10
    config.train.eval_every = config.train.checkpoint_every = 50
    config.train.keep_checkpoints = 1
    config.train.best_metric = "eval/word_alignment/agreement"
    config.train.patience = 3
    return variants.apply(config, variant, VARIANTS)
