r"""Comparison of objectives on the embedded corpus: docs/experiments/objectives.md.

    python -m xlj.sweep --config=configs/sweeps/comparison.py

This command runs the recipe and its variants with three seeds. Two variants train from scratch:

- `start`: masked language modelling
- `aligned`: masked language modelling, CAMLM and retrieval of translations

The other variants continue from a checkpoint (`--config.init_from=...`), all for the same number of
steps:

- no variant: from `start`, with masked language modelling
- `tlm`: from `start`, with masked language modelling and TLM
- `dwa`: from `start`, with masked language modelling and XLM-Align's objectives
- `ernie_m`: from `start`, with masked language modelling and CAMLM, and BTMLM in the second half
- `mrtd`, `mrtd_trtd`: from `aligned`, with replaced token detection only. A discriminator of this
  size forgets more about sentences than it learns, so these variants show how much of the starting
  model it keeps. XLM-E itself starts from scratch and has a position bias

Takes about 3 minutes on 2 CPU cores. The very small model is our choice; `:tiny` is even smaller.
"""

import ml_collections
import quickstart

from xlj.config import variants

STEPS = 1_000


def start(config):
    config.train.steps = 1_500


def aligned(config):
    """Trains a starting model in which translations have similar vectors."""
    start(config)
    config.objectives.camlm.batch_size = 16
    config.objectives.retrieval.batch_size = 4  # a row has about four pairs
    config.objectives.camlm.mask_rate = 0.25
    config.objectives.retrieval.weight = 0.3


def tlm(config):
    config.objectives.tlm.batch_size = 16


def dwa(config):
    """Adds XLM-Align's objectives, DWA and TLM in the same forward pass."""
    config.objectives.dwa.batch_size = 16
    config.objectives.normalisation = "global"


def ernie_m(config):
    """Adds CAMLM from the first step on, and BTMLM in the second half."""
    config.objectives.camlm.batch_size = 16
    config.model.language_embeddings = "predicted"
    later = {"start_step": STEPS // 2, "objectives": {"btmlm": {"batch_size": 16}}}
    config.phases = ml_collections.ConfigDict({"btmlm": later})


def mrtd(config):
    config.objectives.mmlm.batch_size = 0
    config.objectives.mrtd.batch_size = 16
    config.objectives.mrtd.generator_layers = 1
    config.optimizer.learning_rate = 5e-4  # XLM-E's; with 3e-3 the discriminator learns nothing


def mrtd_trtd(config):
    mrtd(config)
    config.objectives.trtd.batch_size = 16
    config.objectives.trtd.generator_layers = 1


VARIANTS = {f.__name__: f for f in (start, aligned, tlm, dwa, ernie_m, mrtd, mrtd_trtd)}


def get_config(variant=""):
    config = quickstart.get_config("tlm")

    config.data.languages = "en,de,fr,sw"
    config.data.pairs = "en-de,en-fr,en-sw"
    config.data.vocabulary_size = 2_000

    config.model.layers = 3
    config.model.hidden = 64
    config.model.intermediate = 256
    config.model.init_std = 0.07  # 0.02 * sqrt(768 / 64)

    config.objectives.tlm.batch_size = 0

    config.optimizer.learning_rate = 3e-3

    config.train.steps = STEPS
    config.train.log_every = 100
    config.train.eval_every = config.train.checkpoint_every = STEPS // 2
    return variants.apply(config, variant, VARIANTS)
