"""Computes sentence vectors: pools the hidden vectors of a layer, or applies sentence-transformers'
modules."""

from collections.abc import Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from xlj.config import Model
from xlj.data.tokenizer.layout import PAD, Ragged
from xlj.inference.pretrained import Pretrained
from xlj.inference.row_batches import buckets, in_flight, spread
from xlj.interop.sentence_modules import MIN_NORM, Dense
from xlj.models import encoder
from xlj.models.embeddings import FIRST_POSITION
from xlj.objectives.contrast import head
from xlj.retrieval.pooling import pool
from xlj.retrieval.sentence_embedder import Encoding, SentenceEmbedder, fill_rows
from xlj.sharding.devices import on_mesh
from xlj.sharding.meshes import QUICK, mesh_of
from xlj.sharding.trees import replicated, shard


class Embedder(SentenceEmbedder):
    """Embeds sentences with JAX.

    Args:
      pretrained: the encoder, on any mesh. All processes must embed the same sentences.
      batch_size: the maximum number of sentences in a batch; None for a number that suits the
        device.
      whole_batches: whether each device computes batches of its own. Vectors then do not depend on
        the number of devices, but few sentences do not use all devices.
      layers, pooling, prompt, prompt_text, truncate_dim: the arguments of `SentenceEmbedder`.
    """

    def __init__(
        self,
        pretrained: Pretrained,
        layers: Sequence[int] = (),
        pooling: str | None = None,
        batch_size: int | None = None,
        prompt: str | None = None,
        prompt_text: str | None = None,
        truncate_dim: int | None = None,
        whole_batches: bool = False,
    ):
        model = pretrained.model
        encoding = Encoding(
            pretrained.vocabulary,
            model.layers,
            encoder.middle_layer(model.layers),
            model.hidden,
            model.positions - FIRST_POSITION,
            pretrained.sentence,
        )
        super().__init__(encoding, layers, pooling, prompt, prompt_text, truncate_dim)
        self._pretrained, self._mesh = pretrained, mesh_of(pretrained.params)
        static = {"mesh": self._mesh, "model": model, "layers": self.layers}
        static |= {"modes": self.modes, "steps": self.steps, "not_pooled": self.not_pooled}
        self._embed_batch, self._batch_size = partial(_embed_batch, **static), batch_size
        self._whole_batches = whole_batches

    def batches(
        self, encoded: Ragged, lengths: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields (indices of sentences, vectors [layers, rows, width]) of batches."""
        for members, vectors in in_flight(self._start_batches(encoded, lengths)):
            yield members, np.asarray(vectors)

    def _start_batches(
        self, encoded: Ragged, lengths: np.ndarray
    ) -> Iterator[tuple[np.ndarray, jax.Array]]:
        count, whole = self._mesh.size, self._whole_batches
        batches = buckets(lengths + 2, self.limit, 1 if whole else count, self._batch_size)
        for members, width, rows in spread(batches, count) if whole else batches:
            tokens = fill_rows(encoded, lengths, members, (rows, width))
            yield members, self._embed_batch(self._pretrained.params, shard(tokens, self._mesh))


def by_modules(
    pretrained: Pretrained, prompt_text: str | None = None, whole_batches: bool = False
) -> Embedder:
    """Returns an embedder by the model's sentence modules, else by the mean of the last layer."""
    layers = () if pretrained.sentence else (pretrained.model.layers,)
    return Embedder(pretrained, layers, prompt_text=prompt_text, whole_batches=whole_batches)


@partial(
    jax.jit,
    static_argnames=("mesh", "model", "layers", "modes", "steps", "not_pooled"),
    compiler_options=QUICK,
)
def _embed_batch(
    params: encoder.Params,
    tokens: jax.Array,
    mesh: Mesh,
    model: Model,
    layers: tuple[int, ...],
    modes: tuple[str, ...],
    steps: tuple[Dense | None, ...],
    not_pooled: int,
) -> jax.Array:
    """Computes the sentence vectors of a batch.

    Args:
      tokens: int32 [rows, length].
      modes: the pooling modes. The results of several modes are concatenated.
      steps: the modules after pooling; None is a normalisation to length 1.
      not_pooled: the number of tokens at the start of a sentence that are not pooled.

    Returns:
      float32 [layers, rows, width], replicated on all devices.
    """
    segments = (tokens != PAD).astype(jnp.int32)
    positions = jnp.arange(tokens.shape[1]) * segments
    inputs = encoder.Inputs(tokens, positions, segments, segments)
    depth = max(1, *layers)

    def vectors(hidden: jax.Array) -> jax.Array:
        return _apply_modules(params, steps, pool(jnp, hidden, tokens, modes, not_pooled))

    if layers == (depth,):
        hidden = on_mesh(mesh, partial(encoder.apply, layers=depth))(params, model, inputs)
        pooled = vectors(hidden)[None]
    else:
        apply = partial(encoder.apply, layers=depth, all_layers=True)
        all_hidden = on_mesh(mesh, apply)(params, model, inputs)
        pooled = jnp.stack([vectors(all_hidden[layer]) for layer in layers])
    return jax.lax.with_sharding_constraint(pooled, replicated(mesh))


def _apply_modules(
    params: encoder.Params, steps: tuple[Dense | None, ...], vectors: jax.Array
) -> jax.Array:
    """Applies the modules after pooling to vectors [rows, width]; returns float32."""
    vectors = vectors.astype(jnp.float32)
    for number, step in enumerate(steps):
        if step is None:
            length = jnp.linalg.norm(vectors, axis=-1, keepdims=True)
            vectors = vectors / jnp.maximum(length, MIN_NORM)
            continue
        weights = params["sentence"][str(number)]
        product = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
        output = product(vectors, weights["kernel"])
        output = head.ACTIVATIONS[step.activation](
            output + weights["bias"] if step.bias else output
        )
        if step.residual:
            output += product(vectors, weights["residual"]) if "residual" in weights else vectors
        vectors = output
    return vectors
