"""Replaced token detection: MRTD on monolingual rows, TRTD on rows of sentence pairs (XLM-E).

The head is ELECTRA's: it predicts whether tokens were replaced.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from xlj.config import Model
from xlj.contracts.arrays import Specified, check
from xlj.data.rows.store import Corpus
from xlj.data.tokenizer.layout import PAD
from xlj.models import encoder
from xlj.models.dense import Dense
from xlj.models.dropout import Rngs
from xlj.models.modules import init_head, run
from xlj.models.segments import whole_examples
from xlj.objectives.corruption import Masked, mask_tokens, split
from xlj.objectives.mlm.head import init_prediction, predict
from xlj.objectives.mlm.loss import gather, prediction_loss
from xlj.objectives.objective import Loss, Losses, LossSums, Objective, Rows
from xlj.objectives.rtd.options import ReplacedTokenDetection
from xlj.objectives.vocabulary.logits import choose
from xlj.sharding.trees import Params


class RTDInputs(NamedTuple):
    """Rows for the generator, and random keys for its samples."""

    masked: Masked
    sample_rngs: jax.Array
    """A random key for each row, [rows]."""

    def check(self, function: str, **more: Specified) -> None:
        """Checks the arrays, and more arguments, with `xlj.contracts.arrays.check`."""
        self.masked.check(function, sample_rngs=("key [rows]", self.sample_rngs), **more)


def objective(
    name: str, options: ReplacedTokenDetection, model: Model, corpus: Corpus
) -> Objective[RTDInputs, object]:
    """Builds replaced token detection (XLM-E section 3.1, after ELECTRA).

    Generator and discriminator are trained together. The generator predicts masked tokens. Samples
    from its predictions replace the masked tokens; no gradient passes through the samples. The
    discriminator predicts for each token, except padding, whether the token was replaced. A sample
    that equals the original token counts as not replaced.
    """
    generator_loss, discriminator_loss = f"{name}_generator", f"{name}_discriminator"

    def corrupt(rows: Rows, rngs: jax.Array) -> RTDInputs:
        mask_rngs, sample_rngs = split(rngs)
        return RTDInputs(mask_tokens(rows, mask_rngs, options, corpus.vocabulary_size), sample_rngs)

    def count(inputs: RTDInputs) -> dict[str, jax.Array]:
        masked = inputs.masked
        real = (masked.tokens != PAD).sum(1).astype(jnp.float32)
        return {generator_loss: masked.weights.sum(1), discriminator_loss: real}

    def loss(params: Params, state: object, inputs: RTDInputs, rngs: Rngs) -> Losses:
        generator, main = _models(params, options)
        masked, dropout_rngs = inputs.masked, [None] * 2 if rngs is None else split(rngs)
        whole = whole_examples(model, masked.tokens, masked.languages)
        hidden = encoder.apply(generator, model, whole, dropout_rngs[0])
        head = params["generator"]["head"]
        of_generator = prediction_loss(generator, head, model, hidden, masked)
        replaced = replace(generator, head, model, options, hidden, inputs)
        # Positions and segments come from the masked rows. A sample may be a special token, which
        # must not change them.
        hidden = encoder.apply(main, model, whole._replace(tokens=replaced), dropout_rngs[1])
        logits = detect(params["detection_head"], model, hidden)
        of_discriminator = detection_loss(logits, replaced, masked.original())
        return {generator_loss: of_generator, discriminator_loss: of_discriminator}

    return Objective(
        losses={
            generator_loss: Loss(options.generator_weight, over_vocabulary=True),
            discriminator_loss: Loss(options.weight),
        },
        corrupt=corrupt,
        count=count,
        loss=loss,
        parts={
            "generator": partial(init_generator, options=options, model=model, corpus=corpus),
            "detection_head": partial(init_detection, model=model),
        },
        rules=((r"generator/head/.*kernel", PartitionSpec("fsdp", None)),),
    )


def init_generator(
    rng: jax.Array, options: ReplacedTokenDetection, model: Model, corpus: Corpus
) -> Params:
    """Returns new parameters of the generator: layers, head and, if separate, embeddings."""
    check("init_generator", rng=("key []", rng))
    encoder_rng, head_rng = jax.random.split(rng)
    small = dataclasses.replace(model, layers=options.generator.layers)
    size = corpus.vocabulary_size
    params = encoder.init(encoder_rng, small, size, len(corpus.languages))
    if options.generator.embeddings != "separate":
        del params["embeddings"]
    return params | {"head": init_prediction(head_rng, model, size)}


def _models(params: Params, options: ReplacedTokenDetection) -> tuple[Params, Params]:
    """Returns the parameters of the generator and of the discriminator.

    The generator gets the model's embeddings, except with `generator.embeddings=separate`. With
    `generator_only`, the discriminator's loss has no gradient at the embeddings.
    """
    generator = {"embeddings": params["embeddings"]} | params["generator"]
    if options.generator.embeddings == "generator_only":
        params = params | {"embeddings": jax.lax.stop_gradient(params["embeddings"])}
    return generator, params


def replace(
    generator: Params,
    head: Params,
    model: Model,
    options: ReplacedTokenDetection,
    hidden: jax.Array,
    inputs: RTDInputs,
) -> jax.Array:
    """Replaces the masked tokens by samples from the generator.

    Args:
      generator: parameters of the generator's encoder.
      head: parameters of the generator's prediction head.
      hidden: vectors of the generator's last layer, float32 [rows, length, hidden].
      inputs: the masked rows, and random keys for the samples.

    Returns:
      The rows for the discriminator, int32 [rows, length].
    """
    inputs.check("replace", hidden=("float [rows, length, hidden]", hidden))
    masked, table = inputs.masked, generator["embeddings"]["word"]
    vectors, table, bias = predict(head, table, model, gather(hidden, masked.positions))
    rows, slots = masked.positions.shape
    rngs = split(inputs.sample_rngs, slots).T.reshape(-1)
    flat = vectors.reshape(rows * slots, -1)
    samples = choose(flat, table, bias, jnp.dtype(model.dtype), rngs, options.temperature)
    chosen = jnp.where(masked.weights > 0, samples.reshape(rows, slots), masked.labels)
    return masked.tokens.at[jnp.arange(rows)[:, None], masked.positions].set(chosen)


def detection_loss(logits: jax.Array, replaced: jax.Array, original: jax.Array) -> LossSums:
    """Computes the binary cross-entropy of "was replaced" over all tokens except padding, by row.

    Args:
      logits: the logits of "was replaced", float32 [rows, length].
      replaced: the tokens that the discriminator reads, int32 [rows, length].
      original: the tokens before masking, int32 [rows, length].
    """
    check(
        "detection_loss",
        logits=("float32 [rows, length]", logits),
        replaced=("int32 [rows, length]", replaced),
        original=("int32 [rows, length]", original),
    )
    real, is_replaced = original != PAD, replaced != original
    losses = jax.nn.softplus(jnp.where(is_replaced, -logits, logits))
    return LossSums(
        sum=jnp.where(real, losses, 0).sum(1),
        count=real.sum(1).astype(jnp.float32),
        correct=(real & ((logits > 0) == is_replaced)).sum(1).astype(jnp.float32),
    )


class Detection(nn.Module):
    """ELECTRA's discriminator head: one logit per token."""

    model: Model

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        """Maps hidden, float [..., hidden] -> logits of "was replaced", float32 [...]."""
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        x = nn.gelu(Dense(model.hidden, dtype, model.init_std, name="dense")(hidden), False)
        return Dense(1, dtype, model.init_std, name="output")(x)[..., 0]


def init_detection(rng: jax.Array, model: Model) -> Params:
    """Returns new parameters of a `Detection` head."""
    return init_head("init_detection", Detection(model), rng, jnp.zeros((1, model.hidden)))


def detect(params: Params, model: Model, hidden: jax.Array) -> jax.Array:
    """Computes the logits of "was replaced": hidden, float [..., hidden] -> float32 [...].

    Args:
      params: of a `Detection` head.
    """
    check("detect", hidden=(f"float [..., {model.hidden}]", hidden))
    return run(Detection(model), params, hidden)
