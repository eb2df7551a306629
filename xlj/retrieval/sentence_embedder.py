"""What the embedders of sentences share: layers, pooling, prompts, and streams of sentences.

The module imports no JAX, since `onnx_embedder` computes without JAX.
"""

import abc
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from tqdm import tqdm

from xlj.config import ConfigError
from xlj.config.choices import POOLINGS
from xlj.config.fields import check_choice
from xlj.data.tokenizer.layout import BOS, EOS, PAD, Ragged
from xlj.interop.sentence_modules import Dense, SentenceModules
from xlj.io.progress import Advance

_CHUNK = 8192  # how many sentences are tokenized at a time


class Tokenizer(Protocol):
    """A tokenizer of sentences."""

    def encode(self, lines: Sequence[str]) -> Ragged:
        """Encodes lines without `<s>` and `</s>`, which have the ids of xlj's layout."""


class Encoding(NamedTuple):
    """What an embedder needs to know of an encoder.

    Attributes:
      layers: number of layers.
      default_layer: the layer to pool by default.
      hidden: the size of hidden vectors.
      max_tokens: the maximum number of tokens of a row.
      sentence: the sentence-transformers modules; None if the model has none.
    """

    vocabulary: Tokenizer
    layers: int
    default_layer: int
    hidden: int
    max_tokens: int
    sentence: SentenceModules | None


class SentenceEmbedder(abc.ABC):
    """Embeds sentences. A subclass computes the vectors of batches.

    Args:
      encoding: the encoder.
      layers: the layers to pool, from 0 (the embeddings) to the last layer. Empty for the default:
        the model's sentence-transformers modules if there are any and `pooling` is None; otherwise
        the layer nearest to two thirds of the depth.
      pooling: one of `choices.POOLINGS`; None for the mean (or the modules, see `layers`).
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
      limit: the maximum number of tokens of a sentence, with `<s>` and `</s>`.
      modes: the pooling modes. The results of several modes are concatenated.
      steps: the modules after pooling; None is a normalisation to length 1.
      uses_modules: whether the model's sentence modules compute the vectors.
      not_pooled: the number of tokens at the start of a sentence that are not pooled.
      truncated: the number of sentences so far that were truncated to the maximum length of the
        model.
    """

    def __init__(
        self,
        encoding: Encoding,
        layers: Sequence[int] = (),
        pooling: str | None = None,
        prompt: str | None = None,
        prompt_text: str | None = None,
        truncate_dim: int | None = None,
    ):
        if pooling is not None:
            check_choice("pooling", pooling, POOLINGS)
        last, modules, sentence = encoding.layers, encoding.sentence, None
        if modules and not layers and pooling is None:
            sentence, layers = modules, [last]
        layers = layers or [encoding.default_layer]
        wrong = [layer for layer in layers if not 0 <= layer <= last]
        if wrong:
            raise ConfigError(f"layer {wrong[0]} does not exist; the model has layers 0 to {last}")
        self.vocabulary = encoding.vocabulary
        self.limit = encoding.max_tokens
        if prompt is not None and not modules:
            raise ConfigError(f"prompt={prompt!r}: the model has no prompts; remove the prompt")
        if prompt_text is None and modules and (sentence or prompt is not None):
            prompt_text = modules.prompt(prompt)
        self.prompt = prompt_text or ""
        self.modes: tuple[str, ...] = (pooling or "mean",)
        self.steps: tuple[Dense | None, ...] = ()
        self._lowercase = False
        self.layers, self.width = tuple(layers), encoding.hidden
        self.not_pooled, self.uses_modules, self.truncated = 0, sentence is not None, 0
        if sentence:
            self.limit = min(self.limit, sentence.length or self.limit)
            self._lowercase = sentence.lowercase
            self.modes, self.steps = sentence.pooling, sentence.steps
            self.width = sentence.width(self.width)
            truncate_dim = truncate_dim or sentence.settings.get("truncate_dim")
            if self.prompt and not sentence.include_prompt:
                self.not_pooled = 1 + len(self._encode([""]).ids)
        self.width = min(self.width, truncate_dim or self.width)

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
        return self.vocabulary.encode(texts)

    def embed_ids(self, encoded: Ragged, progress: Advance = bool) -> np.ndarray:
        """Returns the vectors of tokenized sentences, float32 [layers, sentences, width].

        Args:
          encoded: the ids from `Vocabulary.encode`, including the prompt if there is one.
          progress: called with the number of newly embedded sentences.
        """
        vectors = np.empty((len(self.layers), len(encoded.lengths), self.width), np.float32)
        lengths = np.minimum(encoded.lengths, self.limit - 2)
        self.truncated += int((lengths < encoded.lengths).sum())
        for members, batch in self.batches(encoded, lengths):
            vectors[:, members] = batch[:, : len(members), : self.width]
            progress(len(members))
        return vectors

    @abc.abstractmethod
    def batches(
        self, encoded: Ragged, lengths: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields (indices of sentences, vectors [layers, rows, width]) of batches.

        A batch may have more rows than sentences; the last rows are then unused.

        Args:
          lengths: the number of tokens of each sentence without `<s>` and `</s>`, after truncation.
        """


def fill_rows(encoded: Ragged, lengths: np.ndarray, members: np.ndarray,
              shape: tuple[int, int]) -> np.ndarray:  # fmt: skip
    """Returns a batch of rows `<s> ... </s>` with padding, int32 of the given shape.

    Args:
      lengths: an argument of `SentenceEmbedder.batches`.
      members: the sentences of the batch.
    """
    tokens = np.full(shape, PAD, np.int32)
    for row, member in enumerate(members):
        start, length = encoded.starts[member], lengths[member]
        tokens[row, 0], tokens[row, length + 1] = BOS, EOS
        tokens[row, 1 : length + 1] = encoded.ids[start : start + length]
    return tokens
