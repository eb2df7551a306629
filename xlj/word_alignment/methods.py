"""Methods of word alignment, which compute soft alignments and links from hidden vectors of tokens.

| method | soft alignment | links |
|---|---|---|
| optimal_transport | the transport plan | `extraction.itermax` of the plan |
| released | the smaller of `by_rows` and `by_columns` of `Transport` | `extraction.released` |
| argmax, itermax, match | (cosine + 1) / 2, times the prior | `extraction.NAME` |
| hmm | the product of the probabilities in both directions | values of at least `HMM_THRESHOLD` |
| word_links | the mean of the probabilities in both directions | values above 0 |

The links of `word_links` need the threshold that the model stores, which the aligner applies. The
prior is `extraction.diagonal`. `optimal_transport` and `released` multiply the similarities by
the prior before they compute the plan. `register` adds a user's method. The aligner uses only the
attributes of `Method`.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlj.alignment_math import extraction, hmm
from xlj.alignment_math.extraction import diagonal, dot_products, shifted_cosines
from xlj.alignment_math.sinkhorn import same_example, sinkhorn
from xlj.config import ConfigError, Model
from xlj.config.choices import AlignmentOptions
from xlj.objectives.supervised import word_links
from xlj.objectives.word_hmm import head as word_hmm_head
from xlj.objectives.word_hmm.loss import HEAD
from xlj.sharding.trees import Params

HMM_THRESHOLD = 0.2
"""The minimum value for a link: the product of the probabilities in both directions. It was chosen
on the gold set en-fr.golden (docs/experiments/aligner.md)."""


class Side(NamedTuple):
    """The source side or the target side of sentence pairs, at all layers to align."""

    vectors: jax.Array  # float [layers, pairs, m, hidden]
    tokens: jax.Array  # int32 [pairs, m]
    ids: jax.Array  # int32 [pairs, m], the example of each token; 0 for padding (`same_example`)
    words: jax.Array | None = None  # int32 [pairs, m], the word of each token; -1 for padding


class Alignment(NamedTuple):
    """An alignment of tokens.

    Attributes:
      soft: float32 [layers, pairs, m, n], the strength of each link from 0 to 1; 0 between tokens
        of different examples.
      links: bool [layers, pairs, m, n]; None if `Method.match` computes the links.
      nulls: for each side, the probability that the word of a token has no counterpart, float32
        [layers, pairs, m] and [layers, pairs, n]; None if the method does not compute it.
    """

    soft: jax.Array
    links: jax.Array | None
    nulls: tuple[jax.Array, jax.Array] | None = None


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of word alignment. Equal methods share compiled programs.

    Attributes:
      name: the name in calls, and for xlj's methods also in configs and commands.
      align: function that computes alignments on devices. It takes (parameters, model, source,
        target, strength of the prior on the diagonal) and returns an `Alignment`.
      match: function that computes links on the host in NumPy, if `align` does not compute links.
        It takes (soft [layers, pairs, m, n], source ids [pairs, m], target ids [pairs, n]) and
        returns bool [layers, pairs, m, n].
      head: the name of the head that the method needs; empty if it needs only the encoder.
      needs: a description of the head, for the error message if a model lacks the head.
      has_nulls: whether alignments have `nulls`.
    """

    name: str
    align: Callable[[Params, Model, Side, Side, float], Alignment]
    match: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray] | None = None
    head: str = ""
    needs: str = ""
    has_nulls: bool = False

    def can_use(self, parts: Collection[str]) -> bool:
        """Returns whether the parts of a model's parameters include the head that the method needs.

        Args:
          parts: their names.
        """
        return not self.head or self.head in parts


METHODS: dict[str, Method] = {}
"""All methods by name: xlj's methods in the order of `config.choices`, then users' methods."""


def register(method: Method) -> Method:
    """Adds a method, which can then be selected by name in calls, such as `Encoder.align`.

    Configs and commands accept only the methods of `config.choices`.

    Raises:
      ValueError: if another method has this name.
    """
    if METHODS.setdefault(method.name, method) != method:
        raise ValueError(f"another method already has the name {method.name}; choose another name")
    return method


def usable(options: AlignmentOptions, parts: Collection[str]) -> AlignmentOptions:
    """Returns the options, or the defaults if the method needs a head that a model lacks.

    Args:
      parts: the names of the parts of the model's parameters.
    """
    method = METHODS.get(options.method)
    return options if method is None or method.can_use(parts) else AlignmentOptions()


def find(name: str, params: Mapping) -> Method:
    """Returns the method with a name.

    Args:
      params: the parameters of the model that will be aligned.

    Raises:
      ConfigError: if the method does not exist, or needs a head that the model lacks.
    """
    if name not in METHODS:
        raise ConfigError(f"unknown method {name}; expected one of {', '.join(METHODS)}")
    method = METHODS[name]
    if not method.can_use(params):
        raise ConfigError(f"the method {name} needs {method.needs}, which this model lacks")
    return method


_Extract = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def _prior_weight(source: Side, target: Side, prior: float) -> jax.Array | int:
    return diagonal(source.ids, target.ids, prior) if prior else 1


def _align_by_transport(
    is_released: bool, params: Params, model: Model, source: Side, target: Side, prior: float
) -> Alignment:
    """Aligns by optimal transport on dot products of vectors, as XLM-Align does."""
    similarity = dot_products(source.vectors, target.vectors) * _prior_weight(source, target, prior)
    transport = sinkhorn(similarity, source.ids, target.ids)
    if is_released:
        soft = jnp.minimum(transport.by_rows, transport.by_columns)
        return Alignment(soft, extraction.released(transport))
    return Alignment(transport.plan, extraction.itermax(transport.plan, source.ids, target.ids))


def _align_by_cosine(
    links: _Extract | None, params: Params, model: Model, source: Side, target: Side, prior: float
) -> Alignment:
    """Aligns by cosines of vectors, as SimAlign does."""
    similarity = shifted_cosines(source.vectors, target.vectors) * _prior_weight(
        source, target, prior
    )
    soft = jnp.where(same_example(source.ids, target.ids), similarity, 0)
    return Alignment(soft, links(similarity, source.ids, target.ids) if links else None)


def _align_by_hmm(
    params: Params, model: Model, source: Side, target: Side, prior: float
) -> Alignment:
    """Aligns by the hidden Markov model that `objectives.word_hmm` trains.

    The strength of a link is the product of the link's posterior probabilities in both directions
    (Liang, Taskar and Klein, 2006). The prior is not used.
    """

    def of_layer(vectors: tuple[jax.Array, jax.Array]) -> jax.Array:
        forward, backward = (
            hmm.posteriors(*direction).emission.source
            for direction in _directions(params, model, vectors, source, target)
        )
        return forward * backward.swapaxes(-1, -2)

    soft = jax.lax.map(of_layer, (source.vectors, target.vectors))
    return Alignment(soft, soft >= HMM_THRESHOLD)


def _align_by_word_links(
    params: Params, model: Model, source: Side, target: Side, prior: float
) -> Alignment:
    """Aligns by the head that fine-tuning on word links trains. The prior is not used."""
    assert source.words is not None and target.words is not None
    result = word_links.word_probabilities(
        params[word_links.HEAD],
        model,
        (source.vectors, target.vectors),
        (source.ids, target.ids),
        (source.words, target.words),
    )
    return Alignment(result.links, result.links > 0, (result.source_nulls, result.target_nulls))


def likelihoods(params: Params, model: Model, source: Side, target: Side) -> jax.Array:
    """Computes the likelihood of sentence pairs under the hidden Markov model.

    Returns:
      float32 [layers, pairs] in nats per token; 0 for a pair without tokens. It is the sum of two
      values of `hmm.log_likelihood`, target given source and source given target, divided by the
      number of tokens of both sentences.
    """

    def of_layer(vectors: tuple[jax.Array, jax.Array]) -> jax.Array:
        forward, backward = _directions(params, model, vectors, source, target)
        return hmm.log_likelihood(*forward) + hmm.log_likelihood(*backward)

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
    """Computes the arguments of `hmm.log_likelihood` for both directions.

    Args:
      vectors: the vectors of source and target at one layer.

    Returns:
      The arguments for the target given the source, then for the source given the target.
    """
    head, table = params[HEAD], params["embeddings"]["word"]
    keys = [word_hmm_head.keys(head, model, table, side.tokens) for side in (source, target)]
    queries = [word_hmm_head.queries(head, model, side) for side in vectors]
    ids, directions = (source.ids, target.ids), []
    for start, end in ((0, 1), (1, 0)):
        score = word_hmm_head.products(queries[start], keys[end], model.dtype)
        batch = score.shape[:-2]
        null_vectors = jnp.broadcast_to(head["null_bias"], (*batch, 1, model.hidden))
        null = word_hmm_head.products(null_vectors, keys[end], model.dtype)[..., 0, :]
        emission = hmm.Emission(*map(word_hmm_head.log_ratio, (score, null)))
        jumps = jnp.broadcast_to(head["jump_bias"], (*batch, *head["jump_bias"].shape))
        directions.append((emission, jumps, ids[start], ids[end]))
    return directions


register(Method("optimal_transport", partial(_align_by_transport, False)))
register(Method("released", partial(_align_by_transport, True)))
register(Method("argmax", partial(_align_by_cosine, extraction.argmax)))
register(Method("itermax", partial(_align_by_cosine, extraction.itermax)))
register(Method("match", partial(_align_by_cosine, None), match=extraction.match))
_HMM_NEEDS = "the head that objectives.word_hmm trains (configs/aligner.py)"
register(Method("hmm", _align_by_hmm, head=HEAD, needs=_HMM_NEEDS))
_LINKS_NEED = "the head that xlj.finetune trains on links (configs/finetune/word_links.py)"
register(
    Method("word_links", _align_by_word_links, None, word_links.HEAD, _LINKS_NEED, has_nulls=True)
)
