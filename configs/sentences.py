r"""A sentence encoder for search and similarity, from any encoder.

    python -m xlj.train --config=configs/sentences.py --config.init_from=DIR \
        --config.data.languages=en,de --config.data.examples='examples/{language}.jsonl'

Each record has a query and a positive passage; docs/data.md has the formats. Every query is
contrasted with the passages of the whole batch. The vector of a text is the mean over its tokens at
the last layer, so that `xlj.convert export` writes a folder for sentence-transformers, with
modules and prompts.

The sizes and options of the model are those of `init_from`. All values are ours, for one GPU and a
small or base model; `search` is for many GPUs.

Variants:

- `translations`: trains on sentence pairs of `data.pairs` and `data.parallel`; each sentence is
  contrasted with all other sentences of the batch
- `teacher`: trains on the same pairs; the vectors of both sentences of a pair approach the vector
  that a teacher, another sentence encoder, has of the English sentence. The model and the teacher
  may have other sizes and vocabularies. `:teacher,tiny` needs a teacher of the same size, such as

    python -m xlj.train --config=configs/sentences.py:translations,tiny --workdir=runs/teacher
    python -m xlj.train --config=configs/sentences.py:teacher,tiny --workdir=runs/student \
        --config.objectives.sentence_distillation.teacher=runs/teacher
- `search`: trains on queries and passages with up to 7 given negatives, prompts, a guard against
  false negatives, and vectors of several sizes (Matryoshka); a step has 16,384 rows
- `scratch`: trains from random weights a model of 12 layers
- `tiny`: trains from scratch on the embedded corpus
"""

from xlj import config as schema
from xlj.config import variants


def pairs(config):
    """Replaces the examples by sentence pairs, without an objective."""
    config.objectives.contrast.batch_size = 0
    config.data.languages = config.data.examples = ""
    config.data.pairs, config.data.parallel = "en-de,en-sw", "corpus/{pair}.tsv"
    config.data.pair_length = "auto"
    config.evaluation.retrieval.source = "held_out"


def translations(config):
    """Contrasts the sentences of pairs."""
    pairs(config)
    retrieval = config.objectives.retrieval
    retrieval.batch_size, retrieval.loss, retrieval.layer = 512, "softmax", -2
    retrieval.pooling = "mean"


def teacher(config):
    """Distils a teacher of English into the sentences of pairs."""
    pairs(config)
    distillation = config.objectives.sentence_distillation
    distillation.batch_size = 512
    distillation.teacher = "checkpoints/multilingual-e5-small"


def search(config):
    """Adds given negatives, prompts, the guard and small vectors, and enlarges the batch."""
    contrast = config.objectives.contrast
    contrast.batch_size, contrast.negatives = 16_384, 7
    contrast.guard, contrast.guard_margin = True, 0.05
    contrast.query_prompt, contrast.passage_prompt = "query: ", "passage: "
    contrast.dimensions = "64,128,256"
    config.train.gradient_accumulation_steps = 64


def scratch(config):
    """Starts from random weights."""
    variants.from_scratch(config)
    config.data.vocabulary_size = 64_000
    config.model.hidden, config.model.heads, config.model.intermediate = 384, 12, 1536


VARIANTS = {
    "translations": translations,
    "teacher": teacher,
    "search": search,
    "scratch": scratch,
}


def get_config(variant=""):
    config = schema.default()
    config.init_from = "checkpoints/xlm-roberta-base"
    config.transfer.model = "init_from"

    config.data.languages = "en,de,sw"
    config.data.examples = "examples/{language}.jsonl"
    config.data.duplicates = "drop"
    config.data.passage_length = 256

    config.model.dtype = "auto"

    config.objectives.contrast.batch_size = 512
    config.objectives.contrast.query_length = 64

    config.optimizer.learning_rate = 5e-5
    config.optimizer.warmup_steps = 500
    config.optimizer.b2 = 0.98
    config.optimizer.clip_norm = 1.0

    config.train.steps = 10_000
    config.train.log_every = 50
    config.train.eval_every = config.train.checkpoint_every = 500
    return variants.apply(config, variant, VARIANTS)
