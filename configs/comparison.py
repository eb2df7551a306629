r"""Objectives beside each other on the embedded corpus: docs/experiments/objectives.md.

    python -m xlj.sweep --config=configs/sweeps/comparison.py

runs it and its variants with three seeds. `start` is masked language modelling; without a variant
it goes on, and so do `tlm` with TLM beside it, `dwa` with XLM-Align in TLM's place, and `ernie_m`
with CAMLM and then BTMLM, each from the start's checkpoint (`--config.init_from=...`) for as many
steps. `mrtd` and `mrtd_trtd`, replaced token detection in place of all of it, go on from `aligned`,
a start that finds translations: a discriminator this small forgets more of a sentence than it
learns, so what can be compared is how much it keeps.
Takes about 3 minutes on 2 CPU cores. XLM-E itself begins from scratch, with a
position bias. Ours: a very small model. `:tiny` is smaller still.
"""

import ml_collections
import quickstart

from xlj.config import variants

STEPS = 1_000


def start(config):
    config.train.steps = 1_500


def aligned(config):
    """A start of which languages are near to each other."""
    start(config)
    config.objectives.camlm.batch_rows = 16
    config.objectives.retrieval.batch_rows = 4  # of four pairs each, about
    config.objectives.camlm.mask_rate = 0.25
    config.objectives.retrieval.weight = 0.3


def tlm(config):
    config.objectives.tlm.batch_rows = 16


def dwa(config):
    """XLM-Align in place of TLM."""
    config.objectives.dwa.batch_rows = 16
    config.objectives.normalisation = "global"


def ernie_m(config):
    """CAMLM from the beginning, BTMLM from half of the steps on."""
    config.objectives.camlm.batch_rows = 16
    config.model.language_embeddings = "predicted"
    later = {"start_step": STEPS // 2, "objectives": {"btmlm": {"batch_rows": 16}}}
    config.phases = ml_collections.ConfigDict({"btmlm": later})


def mrtd(config):
    config.objectives.mmlm.batch_rows = 0
    config.objectives.mrtd.batch_rows = 16
    config.objectives.mrtd.generator_layers = 1
    config.optimizer.learning_rate = 5e-4  # XLM-E's; at 3e-3 the discriminator learns nothing


def mrtd_trtd(config):
    mrtd(config)
    config.objectives.trtd.batch_rows = 16
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

    config.objectives.tlm.batch_rows = 0

    config.optimizer.learning_rate = 3e-3

    config.train.steps = STEPS
    config.train.log_every = 100
    config.train.eval_every = config.train.checkpoint_every = STEPS // 2
    return variants.apply(config, variant, VARIANTS)
