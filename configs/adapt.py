r"""An encoder adapted to more languages, with text and optional sentence pairs.

    python -m xlj.adapt --from=DIR --languages=ha,yo --mono='corpus/{language}.txt' \
        --pairs=en-ha,en-yo --parallel='corpus/{pair}.tsv' --replay=en --output=adapted

`xlj.adapt` adds pieces to the vocabulary, runs this recipe, measures the model before and after the
training, and exports it. `xlj.train` runs only this recipe, with the vocabulary of `init_from`:

    python -m xlj.train --config=configs/adapt.py --config.init_from=DIR \
        --config.data.languages=en,ha,yo --config.data.mono='corpus/{language}.txt' \
        --config.data.pairs=en-ha,en-yo --config.data.parallel='corpus/{pair}.tsv'

The sizes and options of the model are those of `init_from`. The objective on text is masked
language modelling. The objectives on sentence pairs are TLM and ranking of translations (NT-Xent),
which makes the sentence vectors of translations similar. The learning rate warms up, is constant,
then decays (WSD), so a longer run can start from the checkpoint before the decay. All values are
ours, for one GPU and a base model. Small learning rates preserve the old languages.

Variants:

- `text`: trains without sentence pairs
- `tlm`: trains without ranking
- `sentences`: adds languages to a sentence encoder, as `xlj.adapt --sentences` does. The model
  before is the teacher: the vectors of both sentences of a pair approach the vector that the
  teacher has of the sentence in an old language, and text of old languages keeps its vectors
- `ernie_m`: trains with ERNIE-M's objectives: TLM and CAMLM, and BTMLM from half of the steps on.
  They help most if there is much text and there are few pairs
- `tiny`: trains from scratch on the embedded corpus
"""

from xlj import config as schema
from xlj.config import variants


def ernie_m(config):
    """Replaces the ranking by ERNIE-M's objectives."""
    variants.without("retrieval")(config)
    config.model.language_embeddings = "predicted"
    config.objectives.camlm.batch_size = 32
    config.phases = {
        "back_translation": {"start_step": 5_000, "objectives": {"btmlm": {"batch_size": 32}}}
    }


def sentences(config):
    """Replaces all objectives by the distillation of sentence vectors."""
    variants.without("mmlm", "tlm", "retrieval")(config)
    config.data.pairs, config.data.parallel = "en-ha,en-yo", "corpus/{pair}.tsv"
    config.data.languages = "en"
    config.objectives.sentence_distillation.batch_size = 64
    config.objectives.text_distillation.batch_size = 32
    for name in ("sentence_distillation", "text_distillation"):
        config.objectives[name].teacher = config.init_from


VARIANTS = {
    "text": variants.text_only,
    "sentences": sentences,
    "tlm": variants.without("retrieval"),
    "ernie_m": ernie_m,
}


def get_config(variant=""):
    config = schema.default()
    config.init_from = "checkpoints/xlm-roberta-base"
    config.transfer.model = "init_from"

    config.data.languages = "en,ha,yo"
    config.data.mono = "corpus/{language}.txt"
    config.data.pairs = "en-ha,en-yo"
    config.data.parallel = "corpus/{pair}.tsv"
    config.data.duplicates = "drop"
    config.data.length = 128
    config.data.pair_length = "auto"

    config.model.dtype = "auto"

    config.objectives.mmlm.batch_size = 64
    config.objectives.tlm.batch_size = 16
    config.objectives.retrieval.batch_size = 32
    config.objectives.retrieval.loss = "softmax"
    config.evaluation.retrieval.source = "held_out"

    config.optimizer.learning_rate = 5e-5
    config.optimizer.schedule, config.optimizer.decay = "wsd", "sqrt"
    config.optimizer.warmup_steps, config.optimizer.decay_steps = 500, 2_000
    config.optimizer.b2 = 0.98
    config.optimizer.clip_norm = 1.0

    config.train.steps = 10_000
    config.train.log_every = 50
    config.train.eval_every = config.train.checkpoint_every = 500
    return variants.apply(config, variant, VARIANTS)
