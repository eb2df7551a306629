"""Methods of word alignment: compute soft alignments and links from hidden vectors of tokens.

| method | soft alignment | links |
|---|---|---|
| optimal_transport | the transport plan | `extraction.itermax` of the plan |
| released | the minimum of the plan normalised by rows and by columns | `extraction.released` |
| argmax, itermax, match | (cosine + 1) / 2, times the prior | the function of this name |
| hmm | the product of both directions' probabilities | values of at least `HMM_LEAST` |

`register` adds a user's method. The aligner uses only what `Method` declares.
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
"""The minimum product of both directions' probabilities for a link. It was chosen on en-fr gold
alignments that no reported result uses."""


class Side(NamedTuple):
    """One side of sentence pairs, at each layer to align."""

    vectors: jax.Array  # float [layers, pairs, m, hidden]
    tokens: jax.Array  # int32 [pairs, m]
    ids: jax.Array  # int32 [pairs, m], as in `sinkhorn.same_example`


class Alignment(NamedTuple):
    """An alignment of tokens.

    Attributes:
      soft: float32 [layers, pairs, m, n] between 0 and 1, the strength of each link; 0 between
        tokens of different examples.
      links: bool [layers, pairs, m, n]; None if `Method.match` computes them.
    """

    soft: jax.Array
    links: jax.Array | None


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of word alignment. Equal methods share compiled programs.

    Attributes:
      name: its name in configs, commands and calls.
      align: computes alignments on devices. It takes (parameters, model, source, target, strength
        of the prior on the diagonal) and returns an `Alignment`.
      match: computes links from soft alignments in NumPy on the host, if `align` does not. It takes
        (soft [layers, pairs, m, n], source ids, target ids) and returns bool [layers, pairs, m, n].
      head: the head that the method needs in addition to the encoder; empty for none.
      needs: a description of the head, for the error if a model does not have it.
    """

    name: str
    align: Callable[[Params, Model, Side, Side, float], Alignment]
    match: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray] | None = None
    head: str = ""
    needs: str = ""

    def can_use(self, params: Mapping) -> bool:
        """Returns whether a model with these parameters has the head that the method needs."""
        return not self.head or self.head in params


METHODS: dict[str, Method] = {}
"""All methods by name: xlj's in the order of `config.choices`, then users' methods."""


def register(method: Method) -> Method:
    """Adds a method, which configs, commands and calls can then name.

    Raises:
      ValueError: if another method has this name.
    """
    if METHODS.setdefault(method.name, method) != method:
        raise ValueError(f"another method is already named {method.name}")
    return method


def named(name: str, params: Mapping) -> Method:
    """Returns the method with this name, for a model with these parameters.

    Raises:
      ConfigError: if the method does not exist, or needs a head that the model does not have.
    """
    if name not in METHODS:
        raise ConfigError(f"unknown method {name}; expected one of {', '.join(METHODS)}")
    method = METHODS[name]
    if not method.can_use(params):
        raise ConfigError(f"the method {name} needs {method.needs}, which this model does not have")
    return method


_Extract = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def _weight(source: Side, target: Side, prior: float) -> jax.Array | int:
    return diagonal(source.ids, target.ids, prior) if prior else 1


def _transport(
    is_released: bool, params: Params, model: Model, source: Side, target: Side, prior: float
) -> Alignment:
    """XLM-Align's methods: optimal transport on dot products of vectors."""
    similarity = dot_products(source.vectors, target.vectors) * _weight(source, target, prior)
    transport = sinkhorn(similarity, source.ids, target.ids)
    if is_released:
        soft = jnp.minimum(transport.by_rows, transport.by_columns)
        return Alignment(soft, extraction.released(transport))
    return Alignment(transport.plan, extraction.itermax(transport.plan, source.ids, target.ids))


def _cosine(
    links: _Extract | None, params: Params, model: Model, source: Side, target: Side, prior: float
) -> Alignment:
    """SimAlign's methods, on cosines of vectors."""
    similarity = shifted_cosines(source.vectors, target.vectors) * _weight(source, target, prior)
    soft = jnp.where(same_example(source.ids, target.ids), similarity, 0)
    return Alignment(soft, links(similarity, source.ids, target.ids) if links else None)


def _translation(
    params: Params, model: Model, source: Side, target: Side, prior: float
) -> Alignment:
    """Multiplies the probabilities of each link in both directions (Liang, Taskar and Klein, 2006),
    under the hidden Markov model that `objectives.word_hmm` trains. It does not use the prior."""

    def of_layer(vectors: tuple[jax.Array, jax.Array]) -> jax.Array:
        forth, back = (
            hmm.posteriors(*direction).emission.source
            for direction in _directions(params, model, vectors, source, target)
        )
        return forth * back.swapaxes(-1, -2)

    soft = jax.lax.map(of_layer, (source.vectors, target.vectors))
    return Alignment(soft, soft >= HMM_LEAST)


def likelihoods(params: Params, model: Model, source: Side, target: Side) -> jax.Array:
    """Computes how well the sentences of a pair are generated from each other.

    Returns:
      float32 [layers, pairs] in nats per token: the log likelihood of both sentences relative to
      chance, divided by their number of tokens; 0 for a pair without tokens.
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
    """Returns the arguments of `hmm.log_likelihood` for the target given the source, and for the
    source given the target, from the vectors of one layer."""
    head, table = params[HEAD], params["embeddings"]["word"]
    keys = [word_hmm_head.keys(head, model, table, side.tokens) for side in (source, target)]
    queries = [word_hmm_head.queries(head, model, side) for side in vectors]
    ids, directions = (source.ids, target.ids), []
    for start, end in ((0, 1), (1, 0)):
        score = word_hmm_head.products(queries[start], keys[end], model.dtype)
        batch = score.shape[:-2]
        nothing = jnp.broadcast_to(head["null_bias"], (*batch, 1, model.hidden))
        null = word_hmm_head.products(nothing, keys[end], model.dtype)[..., 0, :]
        emission = hmm.Emission(*map(word_hmm_head.log_ratio, (score, null)))
        jumps = jnp.broadcast_to(head["jump_bias"], (*batch, *head["jump_bias"].shape))
        directions.append((emission, jumps, ids[start], ids[end]))
    return directions


register(Method("optimal_transport", partial(_transport, False)))
register(Method("released", partial(_transport, True)))
register(Method("argmax", partial(_cosine, extraction.argmax)))
register(Method("itermax", partial(_cosine, extraction.itermax)))
register(Method("match", partial(_cosine, None), match=extraction.match))
_HMM_NEEDS = "the head that objectives.word_hmm trains (configs/aligner.py)"
register(Method("hmm", _translation, head=HEAD, needs=_HMM_NEEDS))
