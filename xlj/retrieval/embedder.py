"""Computes sentence vectors: pools the hidden vectors of a layer, or applies sentence-transformers'
modules."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from tqdm import tqdm

from xlj.config import ConfigError, Model
from xlj.config.choices import POOLINGS
from xlj.config.fields import check_choice
from xlj.data.tokenizer.layout import BOS, EOS, PAD, Ragged
from xlj.inference.pretrained import Pretrained
from xlj.inference.row_batches import Advance, buckets, in_flight
from xlj.interop.sentence_modules import MIN_NORM, Dense
from xlj.models import encoder
from xlj.models.embeddings import FIRST_POSITION
from xlj.models.segments import average_rows
from xlj.sharding.devices import on_mesh
from xlj.sharding.meshes import QUICK, mesh_of
from xlj.sharding.trees import replicated, shard

_CHUNK = 8192  # how many sentences are tokenized at a time
_ACTIVATIONS: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "Identity": lambda x: x,
    "Tanh": jnp.tanh,
    "ReLU": jax.nn.relu,
    "GELU": partial(jax.nn.gelu, approximate=False),
    "SiLU": jax.nn.silu,
    "Sigmoid": jax.nn.sigmoid,
}
"""The functions for the activations in `sentence_modules.ACTIVATIONS`."""


class Embedder:
    """Embeds sentences.

    Args:
      pretrained: the encoder, on any mesh. All processes must embed the same sentences.
      layers: the layers to pool, from 0 (the embeddings) to the last layer. Empty for the default:
        the model's sentence-transformers modules if there are any and `pooling` is None; otherwise
        the layer nearest to two thirds of the depth.
      pooling: one of `choices.POOLINGS`; None for the mean (or the modules, see `layers`).
      batch_size: the maximum number of sentences in a batch; None for a number that suits the
        device.
      prompt: the name of one of the model's prompts. None for the default prompt if the modules are
        used, else for no prompt.
      prompt_text: a text to put before each sentence; None for the text of `prompt`.
      truncate_dim: the number of dimensions to keep of each vector; None for the number that the
        modules name, else for all.

    Raises:
      ConfigError: if a layer, the pooling or the prompt does not exist.

    Attributes:
      layers: the layers whose vectors the methods return.
      width: the size of a sentence vector.
      prompt: the text before each sentence.
      truncated: the number of sentences so far that were truncated to the maximum length of the
        model.
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
    ):
        if pooling is not None:
            check_choice("pooling", pooling, POOLINGS)
        last = pretrained.model.layers
        modules, sentence = pretrained.sentence, None
        if modules and not layers and pooling is None:
            sentence, layers = modules, [last]
        layers = layers or [encoder.middle_layer(last)]
        wrong = [layer for layer in layers if not 0 <= layer <= last]
        if wrong:
            raise ConfigError(f"layer {wrong[0]} does not exist; the model has layers 0 to {last}")
        self._pretrained, self._mesh = pretrained, mesh_of(pretrained.params)
        self._limit = pretrained.model.positions - FIRST_POSITION
        if prompt is not None and not modules:
            raise ConfigError(f"prompt={prompt!r}: the model has no prompts; remove the prompt")
        if prompt_text is None and modules and (sentence or prompt is not None):
            prompt_text = modules.prompt(prompt)
        self.prompt = prompt_text or ""
        modes: tuple[str, ...] = (pooling or "mean",)
        steps: tuple[Dense | None, ...] = ()
        self._lowercase = False
        self.layers, self.width = tuple(layers), pretrained.model.hidden
        not_pooled = 0  # the number of tokens at the start of a sentence that are not pooled
        if sentence:
            self._limit = min(self._limit, sentence.length or self._limit)
            self._lowercase, modes, steps = sentence.lowercase, sentence.pooling, sentence.steps
            self.width = sentence.width(self.width)
            truncate_dim = truncate_dim or sentence.settings.get("truncate_dim")
            if self.prompt and not sentence.include_prompt:
                not_pooled = 1 + len(self._encode([""]).ids)
        self.width = min(self.width, truncate_dim or self.width)
        static = {"mesh": self._mesh, "model": pretrained.model, "layers": self.layers}
        static |= {"modes": modes, "steps": steps, "not_pooled": not_pooled}
        self._embed_batch = partial(_embed_batch, **static)
        self.truncated, self._batch_size = 0, batch_size

    def embed(self, sentences: Sequence[str], with_bar: bool | None = None) -> np.ndarray:
        """Returns the vectors of sentences in order, float32 [layers, sentences, width].

        Args:
          with_bar: whether to show a progress bar; None shows a bar on terminals only.
        """
        is_hidden = None if with_bar is None else not with_bar
        vectors, done = np.empty((len(self.layers), len(sentences), self.width), np.float32), 0
        with tqdm(
            total=len(sentences), desc="embedding", unit=" sentences", disable=is_hidden
        ) as bar:
            for part in self.stream(sentences, bar.update):
                vectors[:, done : done + part.shape[1]] = part
                done += part.shape[1]
        return vectors

    def stream(self, sentences: Iterable[str], progress: Advance = bool) -> Iterator[np.ndarray]:
        """Yields the vectors of sentences in order. Memory does not grow with the number of
        sentences.

        Args:
          progress: called with the number of newly embedded sentences.

        Yields:
          float32 [layers, n, width] for the next n sentences.
        """
        rest = iter(sentences)
        while chunk := list(itertools.islice(rest, _CHUNK)):
            yield self.embed_ids(self._encode(chunk), progress)

    def _encode(self, sentences: Sequence[str]) -> Ragged:
        """Returns the ids of the prompt followed by each sentence."""
        texts = [self.prompt + sentence for sentence in sentences]
        if self._lowercase:  # character by character, as in the tokenizers library
            texts = ["".join(map(str.lower, text)) for text in texts]
        return self._pretrained.vocabulary.encode(texts)

    def embed_ids(self, encoded: Ragged, progress: Advance = bool) -> np.ndarray:
        """Returns the vectors of tokenized sentences, float32 [layers, sentences, width].

        Args:
          encoded: the ids from `Vocabulary.encode`, including the prompt if there is one.
          progress: called with the number of newly embedded sentences.
        """
        count = len(encoded.lengths)
        vectors = np.empty((len(self.layers), count, self.width), np.float32)
        for members, batch in in_flight(self._batches(encoded)):
            vectors[:, members] = np.asarray(batch)[:, : len(members), : self.width]
            progress(len(members))
        return vectors

    def _batches(self, encoded: Ragged) -> Iterator[tuple[np.ndarray, jax.Array]]:
        """Yields (indices of sentences, vectors [layers, rows, width]) of batches.

        A batch may have more rows than sentences; the last rows are then unused.
        """
        lengths = np.minimum(encoded.lengths, self._limit - 2)
        self.truncated += int((lengths < encoded.lengths).sum())
        starts = encoded.starts
        batches = buckets(lengths + 2, self._limit, self._mesh.size, self._batch_size)
        for members, width, rows in batches:
            tokens = np.full((rows, width), PAD, np.int32)
            for row, member in enumerate(members):
                start, length = starts[member], lengths[member]
                tokens[row, 0], tokens[row, length + 1] = BOS, EOS
                tokens[row, 1 : length + 1] = encoded.ids[start : start + length]
            yield members, self._embed_batch(self._pretrained.params, shard(tokens, self._mesh))


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
        return _apply_modules(params, steps, _pool(hidden, tokens, modes, not_pooled))

    if layers == (depth,):
        hidden = on_mesh(mesh, partial(encoder.apply, layers=depth))(params, model, inputs)
        pooled = vectors(hidden)[None]
    else:
        apply = partial(encoder.apply, layers=depth, all_layers=True)
        all_hidden = on_mesh(mesh, apply)(params, model, inputs)
        pooled = jnp.stack([vectors(all_hidden[layer]) for layer in layers])
    return jax.lax.with_sharding_constraint(pooled, replicated(mesh))


def _pool(
    hidden: jax.Array, tokens: jax.Array, modes: tuple[str, ...], not_pooled: int
) -> jax.Array:
    """Pools hidden vectors [rows, length, hidden] to [rows, modes * hidden].

    Padding and the first `not_pooled` tokens of each row are excluded.
    """
    place = jnp.arange(tokens.shape[1])
    is_pooled = (tokens != PAD) & (place >= not_pooled)  # [rows, length]
    mask = is_pooled.astype(hidden.dtype)[..., None]  # [rows, length, 1]
    rows = jnp.arange(len(tokens))
    pooled = []
    for mode in modes:
        if mode == "text":
            pooled.append(average_rows(hidden, tokens))
        elif mode in ("first", "cls"):
            pooled.append(hidden[rows, is_pooled.argmax(1)])
        elif mode == "lasttoken":
            last = jnp.where(is_pooled, place, 0).max(1)
            pooled.append(hidden[rows, last] * is_pooled.any(1)[:, None])
        elif mode == "max":
            pooled.append(jnp.where(mask > 0, hidden, -jnp.inf).max(1))
        else:
            count = jnp.maximum(mask.sum(1), 1)
            divisor = jnp.sqrt(count) if mode == "mean_sqrt_len_tokens" else count
            pooled.append((hidden * mask).sum(1) / divisor)
    return pooled[0] if len(pooled) == 1 else jnp.concatenate(pooled, -1)


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
        output = _ACTIVATIONS[step.activation](output + weights["bias"] if step.bias else output)
        if step.residual:
            output += product(vectors, weights["residual"]) if "residual" in weights else vectors
        vectors = output
    return vectors
