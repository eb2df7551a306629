"""Which losses have a perplexity."""

from xlj.config.checks import parse
from xlj.data.rows.corpus import Corpus
from xlj.objectives import build_all
from xlj.training.evaluation import OVER_THE_VOCABULARY

OF_OTHER_THINGS = {
    "mrtd_discriminator",
    "trtd_discriminator",
    "dwa_align",
    "xlco",
    "retrieval",
    "distillation",
}


def test_every_loss_is_of_tokens_or_of_something_else(every):
    built = build_all(parse(every), Corpus(400, ("en", "de", "sw"), (1, 1, 1)))
    losses = {loss for objective in built.values() for loss in objective.weights}
    assert losses == set(OVER_THE_VOCABULARY) | OF_OTHER_THINGS
    assert not OF_OTHER_THINGS & set(OVER_THE_VOCABULARY)
