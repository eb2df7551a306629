"""Heads on top of the encoder, each with its own parameters."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models.dense import Dense, matmul, precision_of
from xlj.models.dropout import Rngs, dropout
from xlj.models.modules import Params, run
from xlj.models.norms import Norm


class Prediction(nn.Module):
    """RoBERTa's head for masked tokens, without the product with the word embeddings.

    It has no dense layer if `model.prediction` is `linear` (EuroBERT).
    """

    model: Model
    vocabulary_size: int

    @nn.compact
    def __call__(self, hidden: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        """Maps [..., hidden] -> float32 [..., hidden].

        Also returns the bias of each token, float32 [vocabulary], and the head's own table of word
        embeddings, or None if it uses those of the encoder.
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
        """Maps [..., hidden] -> float32 [...], high for replaced tokens."""
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        x = nn.gelu(Dense(model.hidden, dtype, model.init_std, name="dense")(hidden), False)
        return Dense(1, dtype, model.init_std, name="output")(x)[..., 0]


class Classification(nn.Module):
    """RoBERTa's classification head, with dropout around a dense layer."""

    model: Model
    classes: int

    @nn.compact
    def __call__(self, vectors: jax.Array, rngs: Rngs) -> jax.Array:
        """Maps [rows, ..., n] -> float32 [rows, ..., classes]."""
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        layer = model.layers + 1  # after those of the encoder
        x = dropout(vectors, rngs, layer, 0, model.dropout)
        x = jnp.tanh(Dense(model.hidden, dtype, model.init_std, name="dense")(x))
        x = dropout(x, rngs, layer, 1, model.dropout)
        return Dense(self.classes, dtype, model.init_std, name="output")(x)


class TokenClassification(nn.Module):
    """BERT's head for tagging and question answering: dropout and a linear map of each vector.

    In question answering the classes are "starts here" and "ends here", and there is no dropout.
    """

    model: Model
    classes: int
    rate: float

    @nn.compact
    def __call__(self, hidden: jax.Array, rngs: Rngs) -> jax.Array:
        """Maps [rows, length, hidden] -> float32 [rows, length, classes]."""
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        x = dropout(hidden, rngs, model.layers + 1, 0, self.rate)
        return Dense(self.classes, dtype, model.init_std, name="output")(x)


class Pointer(nn.Module):
    """XLM-Align's pointer network (Equations 11 to 13): one attention head, queries and keys with
    bias."""

    model: Model

    @nn.compact
    def __call__(self, queries: jax.Array, keys: jax.Array) -> jax.Array:
        """Maps [rows, q, hidden] and [rows, k, hidden] -> scores float32 [rows, q, k]."""
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        q = Dense(model.hidden, dtype, model.init_std, name="query")(queries).astype(dtype)
        k = Dense(model.hidden, dtype, model.init_std, name="key")(keys).astype(dtype)
        scores = jnp.einsum(
            "rqh,rkh->rqk", q, k, precision=precision_of(dtype), preferred_element_type=jnp.float32
        )
        return scores * model.hidden**-0.5


class Projection(nn.Module):
    """InfoXLM's projection for contrastive learning: linear, without bias."""

    model: Model

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        """Maps [..., hidden] -> float32 [..., hidden]."""
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
      table: the word embeddings, float32 [vocabulary, hidden].
      hidden: [..., hidden] at the positions to predict.

    Returns:
      vectors float32 [..., hidden]; the word embeddings or the head's own table; bias float32
      [vocabulary].
    """
    check(
        "predict",
        table=("float [vocabulary, hidden]", table),
        hidden=("float [..., hidden]", hidden),
        bias=("float [vocabulary]", params.get("bias")),
    )
    vectors, bias, own = run(Prediction(model, table.shape[0]), params, hidden)
    return vectors, table if own is None else own, bias


def init_detection(rng: jax.Array, model: Model) -> Params:
    """Returns new parameters of a `Detection` head."""
    return _init_head("init_detection", Detection(model), rng, _vector(model))


def detect(params: Params, model: Model, hidden: jax.Array) -> jax.Array:
    """Computes the logits, float32 [...], of "was replaced" for tokens `hidden` [..., hidden]."""
    check("detect", hidden=(f"float [..., {model.hidden}]", hidden))
    return run(Detection(model), params, hidden)


def init_classification(rng: jax.Array, model: Model, classes: int, vectors: int = 1) -> Params:
    """Returns new parameters of a `Classification` head for `vectors` concatenated vectors."""
    x = jnp.zeros((1, vectors * model.hidden))
    return _init_head("init_classification", Classification(model, classes), rng, x, None)


def classify(params: Params, model: Model, vectors: jax.Array, rngs: Rngs = None) -> jax.Array:
    """Computes logits, float32 [rows, ..., classes], of examples with vectors [rows, ..., n]."""
    check("classify", vectors=("float [rows, ..., n]", vectors), rngs=("key [rows]", rngs))
    classes = params["output"]["bias"].shape[0]
    return run(Classification(model, classes), params, vectors, rngs)


PAIR_FEATURES = 4
"""Number of vectors that `pair_features` concatenates."""


def pair_features(first: jax.Array, second: jax.Array) -> jax.Array:
    """Computes InferSent's features of two sentences (Conneau et al., 2017), for `classify`.

    They are both vectors, their absolute difference and their product: [rows, n] each -> [rows,
    4 n]. XNLI's baselines use them.
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
    """Computes logits, float32 [rows, length, classes], of tokens `hidden` [rows, length, hidden].

    With rngs, dropout at `rate` is applied.
    """
    of_tokens = f"float [rows, length, {model.hidden}]"
    check("classify_tokens", hidden=(of_tokens, hidden), rngs=("key [rows]", rngs))
    classes = params["output"]["bias"].shape[0]
    return run(TokenClassification(model, classes, rate), params, hidden, rngs)


def init_pointer(rng: jax.Array, model: Model) -> Params:
    """Returns new parameters of a `Pointer`."""
    vector = _vector(model)[None]
    return _init_head("init_pointer", Pointer(model), rng, vector, vector)


def point(params: Params, model: Model, queries: jax.Array, keys: jax.Array) -> jax.Array:
    """Computes scores, float32 [rows, q, k], of queries [rows, q, hidden] for keys [rows, k,
    hidden]."""
    check(
        "point",
        queries=(f"float [rows, q, {model.hidden}]", queries),
        keys=(f"float [rows, k, {model.hidden}]", keys),
    )
    return run(Pointer(model), params, queries, keys)


def init_projection(rng: jax.Array, model: Model) -> Params:
    """Returns new parameters of a `Projection`."""
    return _init_head("init_projection", Projection(model), rng, _vector(model))


def project(params: Params, model: Model, hidden: jax.Array) -> jax.Array:
    """Projects vectors [..., hidden] -> float32 [..., hidden]."""
    check("project", hidden=(f"float [..., {model.hidden}]", hidden))
    return run(Projection(model), params, hidden)


def _init_head(function: str, head: nn.Module, rng: jax.Array, *inputs: jax.Array | None) -> Params:
    """Returns new parameters of a head; `function` is the name of the caller, for errors."""
    check(function, rng=("key []", rng))
    return head.init(rng, *inputs)["params"]


def _vector(model: Model) -> jax.Array:
    return jnp.zeros((1, model.hidden))
