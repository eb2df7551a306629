"""Heads on top of the encoder, each with its own parameters."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models.dense import Dense, matmul
from xlj.models.dropout import Rngs, dropout
from xlj.models.lowering import precision_of
from xlj.models.modules import Params, run
from xlj.models.norms import Norm


class Prediction(nn.Module):
    """RoBERTa's head for masked tokens, without the product with the word embeddings.

    With `model.prediction=dense` the head is a dense layer, GELU and a norm. With
    `model.prediction=linear` (EuroBERT) the product follows the encoder directly.
    """

    model: Model
    vocabulary_size: int

    @nn.compact
    def __call__(self, hidden: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        """Computes the factors of the logits, which are vectors @ table.T + bias.

        Args:
          hidden: float [..., hidden].

        Returns:
          vectors, float32 [..., hidden]; bias, float32 [vocabulary]; and the head's table of word
          embeddings, float32 [vocabulary, hidden], or None if the head uses the encoder's table.
        """
        model, x, table = self.model, hidden, None
        if model.prediction == "dense":
            dtype, has_bias = jnp.dtype(model.dtype), "prediction" in model.biases
            dense = Dense(model.hidden, dtype, model.init_std, has_bias=has_bias, name="dense")
            x = Norm(model, name="norm")(nn.gelu(dense(hidden), approximate=False))
        bias = jnp.zeros(self.vocabulary_size)
        if "vocabulary" in model.biases:
            bias = self.param("bias", nn.initializers.zeros, (self.vocabulary_size,))
        if not model.tied:
            normal = nn.initializers.normal(model.init_std)
            table = self.param("word", normal, (self.vocabulary_size, model.hidden))
        return x.astype(jnp.float32), bias, table


class Detection(nn.Module):
    """ELECTRA's discriminator head: one logit per token."""

    model: Model

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        """Maps hidden, float [..., hidden] -> logits of "was replaced", float32 [...]."""
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        x = nn.gelu(Dense(model.hidden, dtype, model.init_std, name="dense")(hidden), False)
        return Dense(1, dtype, model.init_std, name="output")(x)[..., 0]


class Classification(nn.Module):
    """RoBERTa's classification head: dropout, a dense layer with tanh, dropout, a linear layer."""

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
        x = jnp.tanh(Dense(model.hidden, dtype, model.init_std, name="dense")(x))
        x = dropout(x, rngs, layer, 1, model.dropout)
        return Dense(self.classes, dtype, model.init_std, name="output")(x)


class TokenClassification(nn.Module):
    """BERT's head for tagging and question answering: dropout and a linear map of each vector.

    In question answering the classes are "the answer starts here" and "the answer ends here", and
    there is no dropout.

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
        x = dropout(hidden, rngs, model.layers + 1, 0, self.rate)
        return Dense(self.classes, dtype, model.init_std, name="output")(x)


class Pointer(nn.Module):
    """XLM-Align's pointer network (Equations 11 to 13).

    It is one attention head. The linear maps of queries and of keys have a bias.
    """

    model: Model

    @nn.compact
    def __call__(self, queries: jax.Array, keys: jax.Array) -> jax.Array:
        """Computes scores, float32 [rows, q, k], before the softmax.

        Args:
          queries: vectors of the tokens that point, float [rows, q, hidden].
          keys: vectors of the tokens to point to, float [rows, k, hidden].
        """
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        q = Dense(model.hidden, dtype, model.init_std, name="query")(queries).astype(dtype)
        k = Dense(model.hidden, dtype, model.init_std, name="key")(keys).astype(dtype)
        scores = jnp.einsum(
            "rqh,rkh->rqk", q, k, precision=precision_of(dtype), preferred_element_type=jnp.float32
        )
        return scores * model.hidden**-0.5


class Projection(nn.Module):
    """InfoXLM's projection for contrastive learning: a linear map without bias."""

    model: Model

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        """Maps hidden, float [..., hidden] -> float32 [..., hidden]."""
        normal = nn.initializers.normal(self.model.init_std)
        kernel = self.param("kernel", normal, (self.model.hidden, self.model.hidden))
        return matmul(hidden, kernel, jnp.dtype(self.model.dtype))


def init_prediction(rng: jax.Array, model: Model, vocabulary_size: int) -> Params:
    """Returns new parameters of a `Prediction` head."""
    return _init_head("init_prediction", Prediction(model, vocabulary_size), rng, _vector(model))


def predict(
    params: Params, table: jax.Array, model: Model, hidden: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Computes the factors of the logits of masked tokens: logits = vectors @ table.T + bias.

    Args:
      params: of a `Prediction` head.
      table: the encoder's word embeddings, float32 [vocabulary, hidden].
      hidden: vectors at the positions to predict, float [..., hidden].

    Returns:
      vectors, float32 [..., hidden]; table, float32 [vocabulary, hidden], which is the head's table
      if it has one, else the argument; and bias, float32 [vocabulary].
    """
    check(
        "predict",
        table=("float [vocabulary, hidden]", table),
        hidden=("float [..., hidden]", hidden),
        bias=("float [vocabulary]", params.get("bias")),
    )
    vectors, bias, head_table = run(Prediction(model, table.shape[0]), params, hidden)
    return vectors, table if head_table is None else head_table, bias


def init_detection(rng: jax.Array, model: Model) -> Params:
    """Returns new parameters of a `Detection` head."""
    return _init_head("init_detection", Detection(model), rng, _vector(model))


def detect(params: Params, model: Model, hidden: jax.Array) -> jax.Array:
    """Computes the logits of "was replaced": hidden, float [..., hidden] -> float32 [...].

    Args:
      params: of a `Detection` head.
    """
    check("detect", hidden=(f"float [..., {model.hidden}]", hidden))
    return run(Detection(model), params, hidden)


def init_classification(rng: jax.Array, model: Model, classes: int, vectors: int = 1) -> Params:
    """Returns new parameters of a `Classification` head.

    Args:
      vectors: number of vectors that are concatenated as the input of the head.
    """
    x = jnp.zeros((1, vectors * model.hidden))
    return _init_head("init_classification", Classification(model, classes), rng, x, None)


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
    return _init_head("init_token_classification", head, rng, _vector(model)[None], None)


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


def init_pointer(rng: jax.Array, model: Model) -> Params:
    """Returns new parameters of a `Pointer` head."""
    vector = _vector(model)[None]
    return _init_head("init_pointer", Pointer(model), rng, vector, vector)


def point(params: Params, model: Model, queries: jax.Array, keys: jax.Array) -> jax.Array:
    """Computes the scores of a `Pointer` head, float32 [rows, q, k].

    Args:
      queries: vectors of the tokens that point, float [rows, q, hidden].
      keys: vectors of the tokens to point to, float [rows, k, hidden].
    """
    check(
        "point",
        queries=(f"float [rows, q, {model.hidden}]", queries),
        keys=(f"float [rows, k, {model.hidden}]", keys),
    )
    return run(Pointer(model), params, queries, keys)


def init_projection(rng: jax.Array, model: Model) -> Params:
    """Returns new parameters of a `Projection` head."""
    return _init_head("init_projection", Projection(model), rng, _vector(model))


def project(params: Params, model: Model, hidden: jax.Array) -> jax.Array:
    """Projects hidden, float [..., hidden] -> float32 [..., hidden].

    Args:
      params: of a `Projection` head.
    """
    check("project", hidden=(f"float [..., {model.hidden}]", hidden))
    return run(Projection(model), params, hidden)


def _init_head(function: str, head: nn.Module, rng: jax.Array, *inputs: jax.Array | None) -> Params:
    """Returns new parameters of a head.

    Args:
      function: the name of the caller, for error messages.
      inputs: arguments of the head's `__call__`, of which only shapes and dtypes matter.
    """
    check(function, rng=("key []", rng))
    return head.init(rng, *inputs)["params"]


def _vector(model: Model) -> jax.Array:
    """Returns an input for the initialisation of a head: zeros, float32 [1, hidden]."""
    return jnp.zeros((1, model.hidden))
