"""What encoders of all backends do: sentence vectors, similarities, retrieval and mining.

The module imports no JAX, since `onnx_encoder` computes without JAX.
"""

import abc
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlj.api import mteb_model
from xlj.api.results import AlignedDocuments, MinedPairs, Retrieved
from xlj.config import ConfigError
from xlj.config.choices import JOINS, SIMILARITIES
from xlj.config.fields import check_choice
from xlj.data.text.splitting import split
from xlj.document_alignment import documents, encoding
from xlj.document_alignment.documents import Document, Splitter
from xlj.interop.sentence_modules import SentenceModules
from xlj.io.quoting import quoted
from xlj.retrieval import mining
from xlj.retrieval.search import centre, nearest
from xlj.retrieval.sentence_embedder import SentenceEmbedder

Sentences = str | Iterable[str]
"""Sentences; a string is one sentence."""
Texts = str | Path | Iterable[str]
"""A document: the path of a file, or its sentences or paragraphs."""


class SentenceEncoder(abc.ABC):
    """An encoder of sentences.

    In all methods, layer 0 is the embeddings. Methods that compute sentence vectors truncate
    sentences that are too long for the model, with a warning.

    Attributes:
      source: the path that the encoder was loaded from; empty if it was not loaded from a path.
    """

    source: str

    @property
    @abc.abstractmethod
    def layers(self) -> int:
        """The number of layers."""

    @property
    @abc.abstractmethod
    def device(self) -> str:
        """The device on which the encoder computes, such as `cpu:0`."""

    @property
    @abc.abstractmethod
    def sentence_modules(self) -> SentenceModules | None:
        """The model's sentence-transformers modules; None if it has none."""

    @property
    @abc.abstractmethod
    def digest(self) -> str:
        """The SHA-256 of the model."""

    @abc.abstractmethod
    def embedder(
        self,
        layers: Sequence[int] = (),
        pooling: str | None = None,
        batch_size: int | None = None,
        prompt: str | None = None,
        prompt_text: str | None = None,
        truncate_dim: int | None = None,
    ) -> SentenceEmbedder:
        """Returns the embedder that `embed` uses. It also embeds streams of sentences.

        Args:
          layers: layers whose hidden vectors to pool; empty for the default layer.
          pooling, batch_size, prompt: the arguments of `embed`.
          prompt_text: a text to put before each sentence; None for the text of `prompt`.
          truncate_dim: the number of dimensions to keep of each vector; None for the number that
            the modules name, else for all.
        """

    @abc.abstractmethod
    def _check_device(self, device: Any) -> None:
        """Refuses another device than that of the encoder."""

    def role_embedder(
        self,
        role: str,
        prompt_text: str | None = None,
        layers: Sequence[int] = (),
        pooling: str | None = None,
        dimensions: int | None = None,
    ) -> SentenceEmbedder:
        """Returns an embedder for queries or for documents.

        Args:
          role: `query` or `document`.
          prompt_text: a text to put before each sentence. None for the prompt of the
            sentence-transformers folder for this role (`document`, `passage` or `corpus` for
            documents), or for no prompt if there is none, or `layers` or `pooling` is set.
          layers, pooling: the arguments of `embedder`.
          dimensions: the number of dimensions to keep of each vector; None for the number that the
            folder names, else for all.

        Raises:
          ConfigError: if the vectors have fewer dimensions, or for the reasons of `embedder`.
        """
        modules = self.sentence_modules
        if prompt_text is None:
            uses_modules = not layers and pooling is None
            prompt_text = modules.role_prompt(role) if modules and uses_modules else ""
        embedder = self.embedder(layers, pooling, prompt_text=prompt_text, truncate_dim=dimensions)
        if dimensions and embedder.width < dimensions:
            raise ConfigError(f"dimensions={dimensions}: the vectors have only {embedder.width}")
        return embedder

    def embed(
        self,
        sentences: Sentences,
        layer: int | None = None,
        pooling: str | None = None,
        centred: bool = False,
        *,
        normalize: bool = False,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        prompt: str | None = None,
    ) -> np.ndarray:
        """Computes a vector for each sentence, float32 [sentences, hidden].

        If the encoder was loaded from a sentence-transformers folder, the modules of the folder
        compute the vectors, unless `layer` or `pooling` is set.

        Args:
          sentences: any number of sentences; a single string is one sentence.
          layer: the layer whose hidden vectors to pool.
          pooling: `mean`: the mean of all tokens including `<s>` and `</s>`. `text`: the mean of
            the text's tokens only. `first`: the vector of `<s>`. None for `mean`, or for the
            modules of a sentence-transformers folder (see above).
          centred: whether to subtract the mean of all vectors, which removes what all sentences of
            a language have in common.
          normalize: whether to divide each vector by its L2 norm, so that dot products are cosines.
          batch_size: maximum number of sentences in a batch; None for a number that suits the
            device.
          show_progress_bar: None for a bar in terminals only.
          prompt: name of a prompt of the sentence-transformers folder. The prompt is put before
            each sentence. None for the folder's default prompt, or for no prompt if `layer` or
            `pooling` is set.

        Raises:
          ConfigError: if there is no such layer, pooling or prompt, or a sentence is not a string.
        """
        layers = [] if layer is None else [self._layer(layer)]
        embedder = self.embedder(layers, pooling, batch_size, prompt)
        return _embed(embedder, sentences, show_progress_bar, centred, normalize)

    def encode(
        self,
        sentences: Sentences | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        *,
        device: str | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        layer: int | None = None,
        pooling: str | None = None,
        centred: bool = False,
        **fixed: Any,
    ) -> np.ndarray:
        """Computes vectors as `embed` does, with the parameters of sentence-transformers' `encode`.

        Args:
          sentences: the argument of `embed`. Its name may also be `inputs`.
          prompt_name: name of a prompt of the sentence-transformers folder.
          prompt: the text of a prompt, which replaces `prompt_name`.
          device: the device of this encoder, or None.
          normalize_embeddings: whether to divide each vector by its L2 norm.
          truncate_dim: the number of dimensions to keep, before normalisation; None for the number
            that the sentence-transformers folder names, else for all.
          batch_size, show_progress_bar, layer, pooling, centred: the arguments of `embed`.
          fixed: sentence-transformers' other parameters, with the values in `_FIXED`, and the
            parameters of mteb (`mteb_model`), with which `sentences` are batches of texts.

        Returns:
          float32 [sentences, width], or [width] for a single string.

        Raises:
          ConfigError: for another device or another value of a fixed parameter, and for the reasons
            of `embed`.
        """
        sentences = fixed.pop("inputs", sentences)
        if "task_metadata" in fixed:  # mteb calls: the sentences are in batches
            task, kind = fixed.pop("task_metadata"), fixed.pop("prompt_type", None)
            sentences = mteb_model.texts_of(sentences, task.name)
            prompt = (
                mteb_model.prompt(self.sentence_modules, task, kind) if prompt is None else prompt
            )
            del fixed["hf_split"], fixed["hf_subset"]
        _check_fixed(fixed)
        if truncate_dim is not None and (type(truncate_dim) is not int or truncate_dim < 1):
            raise ConfigError(f"truncate_dim={truncate_dim!r}: expected a number of at least 1")
        self._check_device(device)
        layers = [] if layer is None else [self._layer(layer)]
        name = prompt_name if prompt is None else None
        embedder = self.embedder(layers, pooling, batch_size, name, prompt, truncate_dim)
        vectors = _embed(embedder, sentences, show_progress_bar, centred, normalize_embeddings)
        return vectors[0] if isinstance(sentences, str) else vectors

    def similarity(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Computes the cosine of each vector of `first` with each vector of `second`.

        Args:
          first: [n, hidden] or [hidden].
          second: [m, hidden] or [hidden].

        Returns:
          float32 [n, m].

        Raises:
          ConfigError: if an argument is text.
        """
        for side in (first, second):
            if np.asarray(side).dtype.kind not in "fiu":
                raise ConfigError(
                    "similarity needs vectors, not text; pass the results of embed or encode"
                )
        sides = (np.atleast_2d(np.asarray(side, np.float32)) for side in (first, second))
        one, other = map(_normalized, sides)
        return one @ other.T

    def similarity_pairwise(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Computes the cosine of each row of `first` with the same row of `second`.

        Args:
          first, second: [n, hidden].

        Returns:
          float32 [n].
        """
        one, other = (_normalized(np.asarray(side, np.float32)) for side in (first, second))
        return (one * other).sum(1)

    def retrieve(
        self,
        source: Sentences,
        target: Sentences,
        layer: int | None = None,
        pooling: str | None = None,
        centred: bool = False,
        similarity: str = "cosine",
    ) -> Retrieved:
        """Finds for each sentence of one side the nearest sentence of the other side.

        If several sentences are equally near, the first of them is returned.

        Args:
          source, target: the sentences of the two sides.
          layer, pooling, centred: the arguments of `embed`.
          similarity: `cosine`, or `margin`: the cosine divided by the mean cosine of both sentences
            with their nearest neighbours.

        Returns:
          An object with these attributes. `targets.indices`, int64 [sources, 1]: the index of the
          nearest target of each source. `targets.scores`, float32 [sources, 1]: the similarities of
          these pairs. `sources.indices` and `sources.scores`, [targets, 1]: the same for the
          nearest source of each target.

        Raises:
          ConfigError: if there is no such layer, pooling or similarity, or a side is empty.
        """
        sides = sentences_of(source), sentences_of(target)
        if not all(sides):
            raise ConfigError("retrieve needs sentences on both sides; source or target is empty")
        check_choice("similarity", similarity, SIMILARITIES)
        first, second = (self.embed(side, layer, pooling, centred) for side in sides)
        retrieved = Retrieved(*nearest(first, second, similarity))
        retrieved.sentences = sides
        return retrieved

    def mine(
        self,
        source: Sentences,
        target: Sentences,
        threshold: float = -np.inf,
        layer: int | None = None,
        pooling: str | None = None,
        centred: bool = False,
    ) -> MinedPairs:
        """Finds pairs of sentences that translate each other.

        If a sentence occurs several times on a side, only its first occurrence is used.

        Args:
          source, target: the sentences of the two sides.
          threshold: minimum score of a pair. The score is the margin: the cosine divided by the
            mean cosine of both sentences with their nearest neighbours. It is about 1 for unrelated
            sentences.
          layer, pooling, centred: the arguments of `embed`.

        Returns:
          The pairs, best first: `sources` and `targets`, int64 [pairs], the indices of the
          sentences on their sides, and `scores`, float64 [pairs]. A sentence is in at most one
          pair.

        Raises:
          ConfigError: if there is no such layer or pooling, or a side is empty.
        """
        sides = sentences_of(source), sentences_of(target)
        if not all(sides):
            raise ConfigError("mine needs sentences on both sides; source or target is empty")
        first, second = (np.array(mining.first_occurrences(side)) for side in sides)
        mined = mining.mine(
            *(
                self.embed([side[i] for i in indices], layer, pooling, centred)
                for side, indices in zip(sides, (first, second), strict=True)
            )
        )
        count = int((mined.scores >= threshold).sum())  # scores are in descending order
        sources, targets, scores = (values[:count] for values in mined)
        pairs = MinedPairs(first[sources], second[targets], scores)
        pairs.sentences = sides
        return pairs

    def align_documents(
        self,
        source: Texts,
        target: Texts,
        layer: int | None = None,
        pooling: str | None = None,
        *,
        prompt: str | None = None,
        paragraphs: bool = False,
        joins: str = "sum",
        threshold: float = 0.0,
        show_progress_bar: bool | None = None,
    ) -> AlignedDocuments:
        """Aligns the sentences of two documents that are translations, in the same order.

        A pair has one to four sentences of each side. Other sentences have no counterpart.

        Args:
          source, target: a list of sentences, in which a blank string is a break that no pair
            crosses; or the path of a file, as a string or a `Path`, which `xlj.align_documents`
            describes.
          layer, pooling, prompt, show_progress_bar: the arguments of `embed`.
          paragraphs: whether the texts are paragraphs, to be split into sentences by rules of the
            script.
          joins: `sum`: the vector of joined sentences is the sum of their vectors. `encode`: it is
            the vector of the joined text, which takes about ten times as long.
          threshold: minimum confidence of a pair.

        Returns:
          The pairs in order: `source` and `target`, lists of zero-based numbers, and `confidence`.
          The attribute `texts` has the text of both sides of each pair, and `report` a summary.

        Raises:
          ConfigError: if there is no such layer, pooling, prompt or choice of `joins`, a file
            cannot be read, or a document has no sentence.
        """
        check_choice("joins", joins, JOINS)
        if not 0 <= threshold <= 1:
            raise ConfigError(f"threshold={threshold}: expected a confidence from 0 to 1")
        splitter = split if paragraphs else None
        sides = (
            _document("source", source, splitter),
            _document("target", target, splitter),
        )
        embedder = self.embedder(
            [] if layer is None else [self._layer(layer)], pooling, None, prompt
        )
        aligned = encoding.align(embedder, *sides, joins, show_progress_bar)
        _warn_truncated(embedder, stacklevel=3)
        return AlignedDocuments(aligned, threshold)

    def _layer(self, layer: int) -> int:
        if isinstance(layer, bool) or not isinstance(layer, int):
            raise ConfigError(
                f"layer={quoted(layer)} is not a number; expected a layer from 0 to "
                f"{self.layers}. `align` and `score` take sentences and translations as one "
                "argument: [(sentence, translation), ...]"
            )
        if not 0 <= layer <= self.layers:
            raise ConfigError(
                f"layer {layer} does not exist; the model has layers 0 to {self.layers}"
            )
        return layer


_AS_ARRAY = "encode returns a NumPy array, which torch.from_numpy converts"
_ONE_PROCESS = "encode computes in one process"
_FIXED = {
    "output_value": (("sentence_embedding",), "encode returns sentence vectors only"),
    "precision": (
        ("float32", None),
        "encode returns float32, which sentence_transformers.quantize_embeddings converts",
    ),
    "convert_to_numpy": ((True,), _AS_ARRAY),
    "convert_to_tensor": ((False, None), _AS_ARRAY),
    "pool": ((None,), _ONE_PROCESS),
    "chunk_size": ((None,), _ONE_PROCESS),
}
"""Parameters of sentence-transformers' `encode` that xlj accepts with some values only: (these
values, why others are refused)."""


def _check_fixed(arguments: Mapping[str, Any]) -> None:
    """Refuses unknown arguments of `encode`, and values that `_FIXED` does not have."""
    for name, value in arguments.items():
        if name not in _FIXED:
            raise ConfigError(f"encode has no parameter {name}; docs/api.md lists the parameters")
        values, reason = _FIXED[name]
        if value not in values:
            expected = " or ".join(map(repr, values))
            raise ConfigError(f"{name}={quoted(value)}: {reason}; expected {expected}")


def _embed(
    embedder: SentenceEmbedder,
    sentences: Any,
    show_progress_bar: bool | None,
    centred: bool,
    normalize: bool,
) -> np.ndarray:
    """Computes vectors of one layer (`Encoder.embed`), and warns of truncated sentences."""
    vectors = embedder.embed(sentences_of(sentences), show_progress_bar)[0]
    _warn_truncated(embedder, stacklevel=4)
    if centred and len(vectors):
        centre(vectors)
    return _normalized(vectors) if normalize else vectors


def _warn_truncated(embedder: SentenceEmbedder, stacklevel: int) -> None:
    """Warns of truncated sentences; `stacklevel` leads to the user's line."""
    if embedder.truncated:
        message = "sentences truncated because they are too long for the model"
        warnings.warn(f"{message}: {embedder.truncated:,}", stacklevel=stacklevel)


def _document(name: str, texts: Texts, splitter: Splitter | None) -> Document:
    if isinstance(texts, str | Path):
        return documents.read(Path(texts), splitter=splitter)
    return documents.of_texts(sentences_of(texts), splitter, name)


def sentences_of(sentences: Sentences) -> list[str]:
    sentences = [sentences] if isinstance(sentences, str) else list(sentences)
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise ConfigError(
                f"sentence {number} is {quoted(sentence)}, not a string; pass one string or a list "
                "of strings"
            )
    return sentences


def _normalized(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
