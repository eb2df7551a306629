"""Heads of fine-tuning tasks: their interface, and heads for classes of examples and of tokens."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model, task
from xlj.contracts.arrays import check
from xlj.models.dense import Dense
from xlj.models.dropout import Rngs, dropout
from xlj.models.modules import init_head, run
from xlj.models.segments import average_examples, find_starts
from xlj.objectives.mlm.head import Prediction
from xlj.objectives.objective import Rows
from xlj.sharding.trees import Params


def _best(logits: jax.Array) -> jax.Array:
    """Returns the index of the highest logit, int32 [...], from logits [..., labels]."""
    return logits.argmax(-1).astype(jnp.int32)


def _known(rows: Rows) -> jax.Array:
    """Returns 1 for labels, which count from 1, and 0 for "no label", float32 of their shape."""
    return (rows["labels"] > 0).astype(jnp.float32)


class TaskHead(NamedTuple):
    """The head of a kind of task, as functions.

    The shapes of logits are those that `supervised.logits` returns. Rows are the fields of a batch,
    with the labels that the kind of task stores (`Features.labels`).
    """

    init: Callable[[jax.Array, Model, int], Params]
    """(random key, model, number of labels) -> parameters."""
    logits: Callable[[Params, Model, jax.Array, jax.Array, Rngs], jax.Array]
    """(parameters, model, hidden vectors [rows, length, hidden], tokens [rows, length], a random
    key for each row or None) -> logits."""
    losses: Callable[[jax.Array, Rows], tuple[jax.Array, jax.Array]]
    """(logits, rows) -> (the loss of each prediction, whether each prediction is correct), of
    shape [rows, n] each."""
    predict: Callable[[jax.Array], jax.Array] = _best
    """Logits -> the values from which predictions are decoded. The default returns the index of the
    highest logit, int32."""
    weights: Callable[[Rows], jax.Array] = _known
    """Rows -> 1 for predictions that count, else 0, float32 [rows, n]. By default, predictions with
    a label above 0 in the field `labels` count."""
    gold: Callable[[Rows], jax.Array] | None = None
    """Rows -> the gold scores, float32 [rows], NaN if unknown. Only heads with one score have it:
    they can be trained on the order of the scores (`task.loss=order`)."""
    by_token: bool = False
    """Whether there are logits for each token, [rows, length, ...]."""
    reads_middle: bool = False
    """Whether the head reads the layer at two thirds of the depth (`encoder.middle_layer`), not the
    last layer."""


def cross_entropy(
    choices: Callable[[jax.Array], jax.Array], first: int = 1
) -> Callable[[jax.Array, Rows], tuple[jax.Array, jax.Array]]:
    """Returns the function `losses` of a head that chooses among alternatives.

    Args:
      choices: a function that reshapes the head's logits to [rows, n, choices].
      first: the label of the first choice. Smaller labels are treated as the first choice, so
        `TaskHead.weights` must exclude them.
    """

    def losses(logits: jax.Array, rows: Rows) -> tuple[jax.Array, jax.Array]:
        logits, right = choices(logits), jnp.maximum(rows["labels"] - first, 0)
        log_probabilities = jax.nn.log_softmax(logits)
        of_right = jnp.take_along_axis(log_probabilities, right[..., None], axis=-1)[..., 0]
        return -of_right, logits.argmax(-1) == right

    return losses


@cache
def of_kind(kind: str) -> TaskHead:
    """Returns the head of a kind of task.

    Raises:
      ConfigError: if there is no such kind, or its code cannot be loaded (`task.load`).
    """
    head: TaskHead = task.load(kind).head()
    return head


def head_of(kind: str) -> str:
    """Returns the name that the head of a kind of task has in the parameters: `KIND_head`."""
    return f"{task.load(kind).name}_head"


class Classification(nn.Module):
    """The head of texts: dropout, the layers of `model.task_head`, dropout, a linear layer.

    RoBERTa has a dense layer with tanh, EuroBERT a dense layer with GELU, and ModernBERT the layers
    of its head for masked tokens.
    """

    model: Model
    classes: int

    @nn.compact
    def __call__(self, vectors: jax.Array, rngs: Rngs) -> jax.Array:
        """Maps vectors, float [rows, ..., n] -> logits, float32 [rows, ..., classes].

        Args:
          rngs: a random key for each row [rows], for dropout; None in evaluation.
        """
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        layer = model.layers + 1  # for dropout: the encoder's layers are 1 to model.layers
        x = dropout(vectors, rngs, layer, 0, model.dropout)
        if model.task_head == "gelu_norm":
            x = Prediction.transform(model, x)
        else:
            x = Dense(model.hidden, dtype, model.init_std, name="dense")(x)
            x = jnp.tanh(x) if model.task_head == "tanh" else nn.gelu(x, approximate=False)
        x = dropout(x, rngs, layer, 1, model.dropout)
        return Dense(self.classes, dtype, model.init_std, name="output")(x)


class TokenClassification(nn.Module):
    """BERT's head for tagging and question answering: dropout and a linear map of each vector.

    In question answering the classes are "the answer starts here" and "the answer ends here", and
    there is no dropout. In ModernBERT, the layers of the head for masked tokens come first.

    Attributes:
      rate: of dropout.
    """

    model: Model
    classes: int
    rate: float

    @nn.compact
    def __call__(self, hidden: jax.Array, rngs: Rngs) -> jax.Array:
        """Maps hidden, float [rows, length, hidden] -> logits, float32 [rows, length, classes].

        Args:
          rngs: a random key for each row [rows], for dropout; None in evaluation.
        """
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        x = Prediction.transform(model, hidden) if model.task_head == "gelu_norm" else hidden
        x = dropout(x, rngs, model.layers + 1, 0, self.rate)
        return Dense(self.classes, dtype, model.init_std, name="output")(x)


def init_classification(rng: jax.Array, model: Model, classes: int, vectors: int = 1) -> Params:
    """Returns new parameters of a `Classification` head.

    Args:
      vectors: number of vectors that are concatenated as the input of the head.
    """
    x = jnp.zeros((1, vectors * model.hidden))
    return init_head("init_classification", Classification(model, classes), rng, x, None)


def classify(params: Params, model: Model, vectors: jax.Array, rngs: Rngs = None) -> jax.Array:
    """Computes the logits of examples, float32 [rows, ..., classes].

    Args:
      params: of a `Classification` head.
      vectors: of the examples, float [rows, ..., n].
      rngs: a random key for each row [rows], for dropout; None in evaluation.
    """
    check("classify", vectors=("float [rows, ..., n]", vectors), rngs=("key [rows]", rngs))
    classes = params["output"]["bias"].shape[0]
    return run(Classification(model, classes), params, vectors, rngs)


def classify_texts(
    params: Params,
    model: Model,
    hidden: jax.Array,
    tokens: jax.Array,
    rngs: Rngs = None,
    max_texts: int = 1,
) -> jax.Array:
    """Computes the logits of the texts of each row, from the vectors that `task_pooling` names.

    Args:
      params: of a `Classification` head.
      hidden: vectors of the tokens, float [rows, length, hidden].
      tokens: int [rows, length]; each text, or pair of texts that belong together, is an example.
      rngs: a random key for each row [rows], for dropout; None in evaluation.
      max_texts: number of slots per row, at least the number of texts.

    Returns:
      float32 [rows, max_texts, classes]; slots without a text have values without meaning.
    """
    check(
        "classify_texts",
        hidden=(f"float [rows, length, {model.hidden}]", hidden),
        tokens=("int [rows, length]", tokens),
        rngs=("key [rows]", rngs),
    )
    if model.task_pooling == "late":
        logits = classify(params, model, hidden, rngs)
        return average_examples(logits, tokens, max_texts, specials=True)
    if model.task_pooling == "mean":
        vectors = average_examples(hidden, tokens, max_texts, specials=True)
    elif max_texts > 1:
        starts = find_starts(tokens, max_texts)
        vectors = jnp.take_along_axis(hidden, starts[..., None], 1)
    else:
        vectors = hidden[:, :1]
    if max_texts == 1:  # the numbers that dropout draws depend on the shape
        return classify(params, model, vectors[:, 0], rngs)[:, None]
    return classify(params, model, vectors, rngs)


PAIR_FEATURES = 4
"""Number of vectors that `pair_features` concatenates."""


def pair_features(first: jax.Array, second: jax.Array) -> jax.Array:
    """Computes InferSent's features of two sentences (Conneau et al., 2017), for `classify`.

    The features are both vectors, their absolute difference and their product. XNLI's baselines use
    these features.

    Args:
      first, second: vectors of the sentences, float [rows, n] each.

    Returns:
      [rows, 4 n], of the dtype of the arguments.
    """
    check("pair_features", first=("float [rows, n]", first), second=("float [rows, n]", second))
    return jnp.concatenate([first, second, jnp.abs(first - second), first * second], axis=-1)


def init_token_classification(rng: jax.Array, model: Model, classes: int) -> Params:
    """Returns new parameters of a `TokenClassification` head."""
    head = TokenClassification(model, classes, 0.0)
    return init_head("init_token_classification", head, rng, jnp.zeros((1, 1, model.hidden)), None)


def classify_tokens(
    params: Params, model: Model, hidden: jax.Array, rate: float, rngs: Rngs = None
) -> jax.Array:
    """Computes the logits of tokens, float32 [rows, length, classes].

    Args:
      params: of a `TokenClassification` head.
      hidden: vectors of the tokens, float [rows, length, hidden].
      rate: of dropout.
      rngs: a random key for each row [rows], for dropout; None for no dropout.
    """
    of_tokens = f"float [rows, length, {model.hidden}]"
    check("classify_tokens", hidden=(of_tokens, hidden), rngs=("key [rows]", rngs))
    classes = params["output"]["bias"].shape[0]
    return run(TokenClassification(model, classes, rate), params, hidden, rngs)
