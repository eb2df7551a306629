"""The head that predicts masked tokens, which several objectives share."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models.dense import Dense
from xlj.models.modules import init_head, run
from xlj.models.norms import Norm
from xlj.sharding.trees import Params


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
        model, table = self.model, None
        x = self.transform(model, hidden) if model.prediction == "dense" else hidden
        bias = jnp.zeros(self.vocabulary_size)
        if "vocabulary" in model.biases:
            bias = self.param("bias", nn.initializers.zeros, (self.vocabulary_size,))
        if not model.tied:
            normal = nn.initializers.normal(model.init_std)
            table = self.param("word", normal, (self.vocabulary_size, model.hidden))
        return x.astype(jnp.float32), bias, table

    @staticmethod
    def transform(model: Model, hidden: jax.Array) -> jax.Array:
        """Applies a dense layer, GELU and a norm: float [..., hidden] -> float32 [..., hidden].

        Compact methods of other heads call it too. Their parameters are then `dense` and `norm`.
        """
        dtype, has_bias = jnp.dtype(model.dtype), "prediction" in model.biases
        dense = Dense(model.hidden, dtype, model.init_std, has_bias=has_bias, name="dense")
        return Norm(model, name="norm")(nn.gelu(dense(hidden), approximate=False))


def init_prediction(rng: jax.Array, model: Model, vocabulary_size: int) -> Params:
    """Returns new parameters of a `Prediction` head."""
    head, hidden = Prediction(model, vocabulary_size), jnp.zeros((1, model.hidden))
    return init_head("init_prediction", head, rng, hidden)


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
