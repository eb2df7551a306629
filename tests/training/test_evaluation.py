"""Which losses have a perplexity."""

from xlj.config import parse
from xlj.data.rows.corpus import Corpus
from xlj.objectives import build_all

OF_TOKENS = {"mmlm", "tlm", "camlm", "btmlm", "mrtd_generator", "trtd_generator", "dwa_tlm"}
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
    losses = {name: loss for objective in built.values() for name, loss in objective.losses.items()}
    assert {name for name, loss in losses.items() if loss.over_vocabulary} == OF_TOKENS
    assert losses.keys() == OF_TOKENS | OF_OTHER_THINGS
