"""Which losses have a perplexity, and how often an evaluation can be stopped."""

import jax

from xlj.config import parse
from xlj.data.rows.corpus import Corpus
from xlj.objectives import build_all
from xlj.sharding import meshes
from xlj.training import state
from xlj.training.evaluation import Evaluation

OF_TOKENS = {"mmlm", "tlm", "camlm", "btmlm", "mrtd_generator", "trtd_generator", "dwa_tlm"}
OF_OTHER_THINGS = {
    "mrtd_discriminator",
    "trtd_discriminator",
    "dwa_align",
    "xlco",
    "retrieval",
    "distillation",
    "word_hmm",
    "word_hmm_normaliser",
}


def test_every_loss_is_of_tokens_or_of_something_else(every):
    built = build_all(parse(every), Corpus(400, ("en", "de", "sw"), (1, 1, 1)))
    losses = {name: loss for objective in built.values() for name, loss in objective.losses.items()}
    assert {name for name, loss in losses.items() if loss.over_vocabulary} == OF_TOKENS
    assert losses.keys() == OF_TOKENS | OF_OTHER_THINGS


def test_it_can_be_stopped_before_each_batch(tiny, store):
    config, corpus = parse(tiny), Corpus.of(store)
    evaluation = Evaluation(store, config, build_all(config, corpus), meshes.make_mesh(config))
    asked = []
    fresh = jax.jit(lambda: state.init(config, corpus))()
    evaluation(fresh, lambda: asked.append(1))
    rows = {
        kind: sum(min(8, t.held_out.rows) for t in store.tasks(kind)) for kind in ("text", "pairs")
    }
    assert len(asked) == sum(-(-count // 16) for count in rows.values()) > 2
