"""The methods of word alignment: from hidden vectors of tokens to soft alignments and links.

| method | soft alignment | links |
|---|---|---|
| optimal_transport | the transport plan | `itermax` of it |
| released | the smaller of the plan normalised by rows and by columns | `released` |
| argmax, itermax, match | (cosine + 1) / 2, times the prior | of that name |
| hmm | both directions' probabilities, multiplied | those of `HMM_LEAST` or more |

A method is a value; the aligner uses no more of it than `Method` declares. `register` adds one.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlj.alignment_math import extraction, hmm
from xlj.alignment_math.similarity import diagonal, dot_products, shifted_cosines
from xlj.alignment_math.sinkhorn import same_example, sinkhorn
from xlj.config import ConfigError, Model
from xlj.models import word_hmm_head
from xlj.models.encoder import Params
from xlj.objectives.word_hmm import HEAD

HMM_LEAST = 0.2
"""The product of both directions' probabilities from which two tokens are linked (chosen on en-fr
gold that nothing else is measured on)."""


class Side(NamedTuple):
    """One side of sentence pairs, at each layer that is aligned."""

    vectors: jax.Array  # float [layers, pairs, m, hidden]
    tokens: jax.Array  # int32 [pairs, m]
    ids: jax.Array  # int32 [pairs, m], as in `sinkhorn.same_example`


class Alignment(NamedTuple):
    """Of tokens, each [layers, pairs, m, n]."""

    soft: jax.Array  # float32, between 0 and 1, 0 between examples: how much two tokens go together
    links: jax.Array | None  # bool; None where `Method.match` finds them


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of word alignment. Equal methods share compiled programs.

    Attributes:
      name: what configs, commands and calls name it by.
      align: aligns on the devices: (parameters, model, source, target, strength of the prior on the
        diagonal) -> `Alignment`.
      match: finds links in soft alignments, in NumPy on the host, where `align` finds none: (soft
        [layers, pairs, m, n], source ids, target ids) -> bool [layers, pairs, m, n].
      head: the part of the parameters that it needs beside the encoder; empty for none.
      needs: what that part is, for the error of a model without it.
    """

    name: str
    align: Callable[[Params, Model, Side, Side, float], Alignment]
    match: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray] | None = None
    head: str = ""
    needs: str = ""

    def is_for(self, params: Mapping) -> bool:
        """Whether a model with these parameters has what the method needs."""
        return not self.head or self.head in params


METHODS: dict[str, Method] = {}
"""All methods by name: those of xlj in the order of `config.choices`, then users' own."""


def register(method: Method) -> Method:
    """Adds a method, which can then be named; raises a ValueError if another has its name."""
    if METHODS.setdefault(method.name, method) != method:
        raise ValueError(f"there is another method {method.name}")
    return method


def named(name: str, params: Mapping) -> Method:
    """The method of this name, for a model with these parameters.

    Raises:
      ConfigError: if there is none, or the model does not have what it needs.
    """
    if name not in METHODS:
        raise ConfigError(f"there is no method {name}; there are {', '.join(METHODS)}")
    method = METHODS[name]
    if not method.is_for(params):
        raise ConfigError(f"the method {name} needs {method.needs}; this model was trained without")
    return method


_Extract = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def _weight(source: Side, target: Side, prior: float) -> jax.Array | int:
    return diagonal(source.ids, target.ids, prior) if prior else 1


def _transport(
    is_released: bool, params: Params, model: Model, source: Side, target: Side, prior: float
) -> Alignment:
    """XLM-Align's: of products of vectors, by optimal transport."""
    similarity = dot_products(source.vectors, target.vectors) * _weight(source, target, prior)
    transport = sinkhorn(similarity, source.ids, target.ids)
    if is_released:
        soft = jnp.minimum(transport.by_rows, transport.by_columns)
        return Alignment(soft, extraction.released(transport))
    return Alignment(transport.plan, extraction.itermax(transport.plan, source.ids, target.ids))


def _cosine(
    links: _Extract | None, params: Params, model: Model, source: Side, target: Side, prior: float
) -> Alignment:
    """SimAlign's: of cosines."""
    similarity = shifted_cosines(source.vectors, target.vectors) * _weight(source, target, prior)
    soft = jnp.where(same_example(source.ids, target.ids), similarity, 0)
    return Alignment(soft, links(similarity, source.ids, target.ids) if links else None)


def _translation(
    params: Params, model: Model, source: Side, target: Side, prior: float
) -> Alignment:
    """By the probability of each link in both directions, multiplied (Liang, Taskar and Klein,
    2006), of the hidden Markov model that `objectives.word_hmm` trains; it has no prior."""

    def of_layer(vectors: tuple[jax.Array, jax.Array]) -> jax.Array:
        forth, back = (
            hmm.posteriors(*given).emission.source
            for given in _directions(params, model, vectors, source, target)
        )
        return forth * back.swapaxes(-1, -2)

    soft = jax.lax.map(of_layer, (source.vectors, target.vectors))
    return Alignment(soft, soft >= HMM_LEAST)


def likelihoods(params: Params, model: Model, source: Side, target: Side) -> jax.Array:
    """How well each sentence of a pair is generated from the other: the logarithm of the likelihood
    of both, over what chance gives, divided by their tokens. It is in nats a token, float32
    [layers, pairs]; 0 where a pair has no tokens.
    """

    def of_layer(vectors: tuple[jax.Array, jax.Array]) -> jax.Array:
        forth, back = _directions(params, model, vectors, source, target)
        return hmm.log_likelihood(*forth) + hmm.log_likelihood(*back)

    total = jax.lax.map(of_layer, (source.vectors, target.vectors))
    tokens = (source.ids > 0).sum(-1) + (target.ids > 0).sum(-1)
    return total / jnp.maximum(tokens, 1)


def _directions(
    params: Params,
    model: Model,
    vectors: tuple[jax.Array, jax.Array],
    source: Side,
    target: Side,
) -> list[tuple[hmm.Emission, jax.Array, jax.Array, jax.Array]]:
    """What `hmm.log_likelihood` takes for the target given the source, and the source given the
    target, of the vectors of one layer."""
    head, table = params[HEAD], params["embeddings"]["word"]
    keys = [word_hmm_head.keys(head, model, table, side.tokens) for side in (source, target)]
    queries = [word_hmm_head.queries(head, model, side) for side in vectors]
    ids, found = (source.ids, target.ids), []
    for start, end in ((0, 1), (1, 0)):
        score = word_hmm_head.products(queries[start], keys[end], model.dtype)
        batch = score.shape[:-2]
        nothing = jnp.broadcast_to(head["null_bias"], (*batch, 1, model.hidden))
        null = word_hmm_head.products(nothing, keys[end], model.dtype)[..., 0, :]
        emission = hmm.Emission(*map(word_hmm_head.log_ratio, (score, null)))
        jumps = jnp.broadcast_to(head["jump_bias"], (*batch, *head["jump_bias"].shape))
        found.append((emission, jumps, ids[start], ids[end]))
    return found


register(Method("optimal_transport", partial(_transport, False)))
register(Method("released", partial(_transport, True)))
register(Method("argmax", partial(_cosine, extraction.argmax)))
register(Method("itermax", partial(_cosine, extraction.itermax)))
register(Method("match", partial(_cosine, None), match=extraction.match))
_HMM_NEEDS = "what objectives.word_hmm trains (configs/aligner.py)"
register(Method("hmm", _translation, head=HEAD, needs=_HMM_NEEDS))
