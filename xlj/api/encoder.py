"""A trained encoder, and what it is used for: vectors, translations, word links, masked words."""

import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from xlj.api.results import Alignments, Labels, MinedPairs, Retrieved
from xlj.config import ConfigError, Model
from xlj.config.choices import ENCODINGS, SIMILARITIES, AlignmentOptions, check_choice
from xlj.config.paths import local_path
from xlj.conversion.exporting import export
from xlj.data.labelled.examples import Example
from xlj.data.labelled.examples import Words as TaggedWords
from xlj.data.labelled.kind import TaskKind
from xlj.data.tokenizer.layout import BOS, EOS
from xlj.inference import pretrained
from xlj.inference.labeller import Labeller
from xlj.inference.pretrained import Pretrained
from xlj.io.quoting import quoted
from xlj.models import encoder, heads
from xlj.models.embeddings import FIRST_POSITION
from xlj.objectives.segments import whole_examples
from xlj.retrieval import mining
from xlj.retrieval.embedder import Embedder
from xlj.retrieval.nearest import centre, nearest
from xlj.retrieval.pair_scores import PairScorer, TextPair
from xlj.sharding.meshes import QUICK
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.methods import METHODS
from xlj.word_alignment.sentence_pairs import Pair
from xlj.word_alignment.words import SPLITS

MASK = "<mask>"
_HEAD = "prediction_head"

Words = str | Sequence[str]
"""A sentence, whose words are what blanks separate, or its words."""
Sentences = str | Iterable[str]
"""Sentences; a string is one."""
WordPairs = tuple[str, str] | Iterable[tuple[Words, Words]]
"""Pairs of sentences; two strings are one pair."""


class Filling(NamedTuple):
    """A piece of the vocabulary for a `<mask>`, as text (`Vocabulary.text_of`), and its
    probability."""

    piece: str
    probability: float


class AlignmentChoices(TypedDict, total=False):
    """What a call to align may choose beside layer and method, as `Encoder.aligner` describes."""

    together: bool | None
    prior: float | None
    threshold: float


def load(path: str | Path, device: str | None = None) -> "Encoder":
    """The encoder at `path`, verified: a workdir (its latest checkpoint; of a
    finished fine-tuning run, that which was scored), the folder of one checkpoint, or a Hugging
    Face folder.

    Args:
      device: where it computes: `cpu`, `gpu`, `cuda:1` and the like; None for the first device.

    Raises:
      ConfigError: if there is no model or no device, or the model is damaged.
    """
    return Encoder(pretrained.load(path, device), str(path))


class Encoder:
    """An encoder in use.

    Where a layer is asked for, 0 is the embeddings; the default is the layer nearest to two thirds
    of the depth, 8 of 12. A sentence that is too long for the model loses its end, with a warning.

    Attributes:
      pretrained: its parameters, its sizes, and its vocabulary.
      source: the path that it was loaded from; empty if it was not.
    """

    def __init__(self, pretrained: Pretrained, source: str = ""):
        self.pretrained, self.source = pretrained, source

    def __repr__(self) -> str:
        model, size = self.pretrained.model, self.pretrained.vocabulary.size
        numbers = sum(leaf.size for leaf in jax.tree.leaves(self.pretrained.params))
        of = f" of {self.source}" * bool(self.source)
        return (
            f"<xlj.Encoder{of}: {model.layers} layers of {model.hidden}, {size:,} pieces, up to "
            f"{model.positions - FIRST_POSITION} tokens, {numbers:,} parameters on {self.device}; "
            f"aligns by {self.pretrained.alignment.method}>"
        )

    @property
    def device(self) -> str:
        """The device that it computes on, such as `cpu:0`."""
        (device, *_) = jax.tree.leaves(self.pretrained.params)[0].devices()
        return f"{device.platform}:{device.id}"

    @property
    def layers(self) -> int:
        """How many it has."""
        return self.pretrained.model.layers

    def embedder(
        self,
        layers: Sequence[int] = (),
        pooling: str | None = None,
        batch_size: int | None = None,
        prompt: str | None = None,
    ) -> Embedder:
        """What `embed` uses, for streams of sentences, and for several layers at a time."""
        return Embedder(self.pretrained, layers, pooling, batch_size, prompt)

    def aligner(
        self,
        layers: Sequence[int] = (),
        method: str | None = None,
        together: bool | None = None,
        prior: float | None = None,
        threshold: float = 0.0,
    ) -> Aligner:
        """What `align` uses, for streams of pairs, several layers at a time, and confidences of
        links (`Aligner.scored`). Each option that is None is the model's own (`alignment_options`).

        Args:
          layers: whose hidden vectors to compare.
          method: one of `methods`; docs/align.md describes each.
          together: encode a pair as one example, not each sentence alone.
          prior: strength of the prior on the diagonal; 0 is none.
          threshold: links of a lower confidence are left out.

        Raises:
          ConfigError: if there is no such method, or the model lacks what it needs.
        """
        encode = None if together is None else ENCODINGS[0 if together else 1]
        options = self.alignment_options(method=method, encode=encode, prior=prior)
        return Aligner(self.pretrained, options, layers, threshold)

    def alignment_options(self, **choices: Any) -> AlignmentOptions:
        """The options of alignment: those of `choices` that are not None, by the names of
        `AlignmentOptions`; the rest as the model's config chose it (`evaluation.alignment`), else
        as in XLM-Align's paper. The layer is a number from 0 on."""
        chosen = {name: value for name, value in choices.items() if value is not None}
        options = dataclasses.replace(self.pretrained.alignment, **chosen)
        layer = encoder.layer_or_middle(options.layer, self.layers)
        return dataclasses.replace(options, layer=layer)

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of those that it can align by."""
        return tuple(n for n, method in METHODS.items() if method.can_use(self.pretrained.params))

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
        """A vector a sentence, float32 [sentences, hidden]; of a folder of sentence-transformers
        that which its modules make, unless a layer or a pooling is named.

        Args:
          sentences: any number; a single string is one sentence.
          layer: whose hidden vectors to pool.
          pooling: mean (over all tokens, `<s>` and `</s>` too), text (over the text's own), or
            first (the vector of `<s>`); None for mean.
          centred: take their mean vector off all of them, so that what all sentences of a language
            have in common counts for nothing.
          normalize: divide each vector by its length, so that products are cosines.
          batch_size: sentences at a time, at most; None for as many as suit the device.
          show_progress_bar: None shows one in terminals only.
          prompt: the name of a prompt of the folder, which goes before each sentence; None for the
            folder's default.

        Raises:
          ConfigError: if there is no such layer, pooling or prompt, or a sentence is no string.
        """
        layers = [] if layer is None else [self._layer(layer)]
        embedder = self.embedder(layers, pooling, batch_size, prompt)
        vectors = embedder.embed(_sentences(sentences), show_progress_bar)[0]
        if embedder.truncated:
            message = f"{embedder.truncated} sentences lost their end: too long for the model"
            warnings.warn(message, stacklevel=2)
        if centred and len(vectors):
            centre(vectors)
        return _normalized(vectors) if normalize else vectors

    def encode(
        self,
        sentences: Sentences,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool = False,
        **options: Any,
    ) -> np.ndarray:
        """`embed` under the names of sentence-transformers: float32 [sentences, hidden], and
        [hidden] of a single string. `options` are `layer`, `pooling`, `centred` and `prompt` of
        `embed`."""
        options |= {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
        vectors = self.embed(sentences, normalize=normalize_embeddings, **options)
        return vectors[0] if isinstance(sentences, str) else vectors

    def similarity(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The cosine of each vector of `first`, [n, hidden] or [hidden], with each of `second`, [m,
        hidden] or [hidden]: float32 [n, m]. Raises a ConfigError for text."""
        for side in (first, second):
            if np.asarray(side).dtype.kind not in "fiu":
                raise ConfigError("similarity takes vectors, as embed and encode give them")
        sides = (np.atleast_2d(np.asarray(side, np.float32)) for side in (first, second))
        one, other = map(_normalized, sides)
        return one @ other.T

    def save_pretrained(
        self, folder: str | Path, layer: int | None = None, pooling: str | None = None
    ) -> None:
        """Writes a Hugging Face folder that transformers and sentence-transformers load: what
        `python -m xlj.convert export` does. Its sentence vectors are of the last layer that is
        written, as sentence-transformers pools; `embed` takes a middle layer by default.

        Args:
          folder: a new one.
          layer: the last one that is written; None for all.
          pooling: `mean` or `first`, as sentence-transformers is to pool; None for the modules of
            the folder that it was loaded from, else mean.

        Raises:
          ConfigError: if the encoder was not loaded from a path, the folder is there already, or
            transformers has no such model.
        """
        if pooling is None and (layer is not None or not self.pretrained.sentence):
            pooling = "mean"
        if pooling is not None:
            check_choice("pooling", pooling, ("mean", "first"))
        if not self.source:
            raise ConfigError("save_pretrained needs an encoder that xlj.load loaded from a path")
        output = local_path("folder", folder).absolute()
        if output.exists():
            raise ConfigError(f"folder={str(folder)!r} is there already; name a new folder")
        export(self.source, output, layer, pooling or "")

    def align(
        self,
        pairs: WordPairs,
        layer: int | None = None,
        method: str | None = None,
        **choices: Unpack[AlignmentChoices],
    ) -> Alignments:
        """The links of each pair, a list of them, sorted: (i, j) for word i of the first sentence
        and word j of the second, counted from 0. A notebook draws them.

        Args:
          pairs: any number of pairs of sentences; two strings are one pair.
          layer: whose hidden vectors to compare.
          method, choices: as of `aligner`.

        Raises:
          ConfigError: as `aligner`, or if there is no such layer, an item is no pair, or a sentence
            is longer than the model's positions.
        """
        layers = [] if layer is None else [self._layer(layer)]
        return Alignments(list(_pairs(pairs)), self.aligner(layers, method, **choices))

    def soft_align(
        self,
        pairs: WordPairs,
        layer: int | None = None,
        method: str | None = None,
        **choices: Unpack[AlignmentChoices],
    ) -> list[np.ndarray]:
        """The soft alignment of each pair, float32 [words of the first, words of the second]:
        between 0 and 1, what the method takes links from. Options and errors as of `align`."""
        layers = [] if layer is None else [self._layer(layer)]
        aligner = self.aligner(layers, method, **choices)
        return [matrices[0] for matrices in aligner.soft(_pairs(pairs))]

    def retrieve(
        self,
        source: Sentences,
        target: Sentences,
        layer: int | None = None,
        pooling: str | None = None,
        centred: bool = False,
        similarity: str = "cosine",
    ) -> Retrieved:
        """The nearest sentence of the other side, for each of both: `targets.indices` int [sources,
        1] and their `scores`, and `sources` likewise. Of equals the first is taken.

        Args:
          layer, pooling, centred: as of `embed`.
          similarity: cosine, or margin (which counts how near the others are).

        Raises:
          ConfigError: if there is no such layer, pooling or similarity, or nothing on a side.
        """
        sides = _sentences(source), _sentences(target)
        if not all(sides):
            raise ConfigError("retrieve needs sentences on both sides")
        check_choice("similarity", similarity, SIMILARITIES)
        first, second = (self.embed(side, layer, pooling, centred) for side in sides)
        found = Retrieved(*nearest(first, second, similarity))
        found.sentences = sides
        return found

    def mine(
        self,
        source: Sentences,
        target: Sentences,
        threshold: float = -np.inf,
        layer: int | None = None,
        pooling: str | None = None,
        centred: bool = False,
    ) -> MinedPairs:
        """Pairs of sentences that translate each other, best first: places int [pairs] on either
        side, and `scores`. A sentence that stands on a side twice counts as its first.

        Args:
          threshold: the lowest score (the margin: about 1 for chance) that makes a pair.
          layer, pooling, centred: as of `embed`.

        Raises:
          ConfigError: if there is no such layer, or nothing on a side.
        """
        sides = _sentences(source), _sentences(target)
        if not all(sides):
            raise ConfigError("mine needs sentences on both sides")
        first, second = (np.array(mining.first_occurrences(side)) for side in sides)
        found = mining.mine(
            *(
                self.embed([side[i] for i in places], layer, pooling, centred)
                for side, places in zip(sides, (first, second), strict=True)
            )
        )
        enough = int((found.scores >= threshold).sum())  # they fall
        sources, targets, scores = (values[:enough] for values in found)
        pairs = MinedPairs(first[sources], second[targets], scores)
        pairs.sentences = sides
        return pairs

    def predict(self, texts: Any, *, show_progress_bar: bool | None = None) -> Labels:
        """What a fine-tuned model says of new text, an object for each text: `xlj predict` in
        Python. docs/predict.md lists the keys of each kind of task, such as `label`, `probability`
        and `probabilities` of classification.

        Args:
          texts: a string is one text. A member is a string; the parts of an example (two sentences
            of a pair, question and context, premise and choices), of tagging the words of a
            sentence; or a mapping such as `{"text": ..., "text_pair": ...}`.
          show_progress_bar: None shows one in terminals only.

        Raises:
          ConfigError: if the model was not fine-tuned, or a text does not fit its task.
        """
        labeller = Labeller(self.pretrained, self.source)
        given = [texts] if isinstance(texts, (str, Mapping)) else list(texts)
        examples = [
            _example(labeller.kind, text, f"text {number}") for number, text in enumerate(given)
        ]
        hidden = None if show_progress_bar is None else not show_progress_bar
        with tqdm(total=len(given), desc="labelling", unit=" texts", disable=hidden) as bar:
            found = Labels(one for one in labeller.stream(examples, bar.update) if one is not None)
        lost = [f"{n} {what}" for what, n in labeller.truncated.items() if n and what != "answers"]
        if lost:
            warnings.warn(f"{', '.join(lost)} lost a part: too long for its rows", stacklevel=2)
        return found

    def score(
        self,
        pairs: tuple[str, str] | Iterable[tuple[str, str]],
        by: str = "cosine",
        layer: int | None = None,
        pooling: str | None = None,
        *,
        show_progress_bar: bool | None = None,
        prompt: str | None = None,
    ) -> np.ndarray:
        """How well the sentences of each pair translate each other, float32 [pairs], NaN where one
        is empty: `xlj score` in Python.

        Args:
          pairs: any number of pairs of sentences; two strings are one pair.
          by: cosine of the sentences' vectors; margin, over the mean cosine of both with their
            nearest neighbours among all these pairs; or likelihood, how well each is generated from
            the other, in nats a token over chance, of a model that `configs/aligner.py` trained.
          layer, pooling, prompt: as of `embed`; likelihoods read the vectors of tokens, and take a
            layer only.
          show_progress_bar: None shows one in terminals only.

        Raises:
          ConfigError: if there is no such score, layer, pooling or prompt, the model lacks what it
            needs, or what is given are no pairs of strings.
        """
        given = _text_pairs(pairs)
        chosen = None if layer is None else self._layer(layer)
        scorer = PairScorer(self.pretrained, by, chosen, pooling, prompt)
        hidden = None if show_progress_bar is None else not show_progress_bar
        with tqdm(total=len(given), desc="scoring", unit=" pairs", disable=hidden) as bar:
            scores = scorer.scores(given, by, bar.update)
        if scorer.embedder and scorer.embedder.truncated:
            count = scorer.embedder.truncated
            message = f"{count} sentences lost their end: too long for the model"
            warnings.warn(message, stacklevel=2)
        return scores

    def fill(self, text: str, most: int = 5) -> list[list[Filling]]:
        """For each `<mask>` of a text, the most likely pieces in its place, best first.

        Raises:
          ConfigError: if there is no `<mask>`, the text is too long, or the model has no head that
            predicts masked tokens (XLM-E's discriminator, say).
        """
        params, model, vocabulary, *_ = self.pretrained
        if _HEAD not in params:
            raise ConfigError("this model has no head that predicts masked tokens")
        if MASK not in text:
            raise ConfigError(f"the text has no {MASK}: {text!r}")
        ids = [BOS, *vocabulary.encode_masked(text).tolist(), EOS]
        limit = model.positions - FIRST_POSITION
        if len(ids) > limit:
            raise ConfigError(f"the text has {len(ids)} tokens; this model reads {limit}")
        tokens = jnp.asarray([ids])
        places = np.flatnonzero(np.asarray(ids) == vocabulary.mask)
        probabilities = np.asarray(_filled(params, tokens, places, model))
        if vocabulary.native_size < vocabulary.size:  # internal ids are none of the model's
            probabilities = np.where(vocabulary.native_ids < 0, 0, probabilities)
            probabilities /= probabilities.sum(1, keepdims=True)
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, :most]
        return [
            [Filling(vocabulary.text_of(int(i)), float(row[i])) for i in chosen]
            for row, chosen in zip(probabilities, best, strict=True)
        ]

    def _layer(self, layer: int) -> int:
        if isinstance(layer, bool) or not isinstance(layer, int):
            raise ConfigError(
                f"layer={quoted(layer)} is no number; sentences and their translations are one "
                "argument: [(sentence, translation), ...]"
            )
        if not 0 <= layer <= self.layers:
            raise ConfigError(f"there is no layer {layer}; the model has layers 0 to {self.layers}")
        return layer


def _sentences(given: Sentences) -> list[str]:
    sentences = [given] if isinstance(given, str) else list(given)
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise ConfigError(f"sentence {number} is {quoted(sentence)}, not a string")
    return sentences


def _example(kind: TaskKind, text: Any, place: str) -> Example:
    if isinstance(text, Mapping):
        return kind.from_record(text, place)
    parts = [text] if isinstance(text, str) else [*text] if isinstance(text, Sequence) else []
    if not parts or not all(isinstance(part, str) and part.strip() for part in parts):
        raise ConfigError(f"{place} is {quoted(text)}; expected text, its parts, or a mapping")
    if kind.example is TaggedWords and not isinstance(text, str):
        return kind.from_record({"words": parts}, place)
    return kind.from_fields(parts, place)


def _text_pairs(given: Any) -> list[TextPair]:
    pairs: list[Any] = [given] if isinstance(given, str) else list(given)
    if len(pairs) == 2 and all(isinstance(side, str) for side in pairs):
        pairs = [(pairs[0], pairs[1])]
    for number, pair in enumerate(pairs):
        is_sequence = isinstance(pair, Sequence) and not isinstance(pair, str)
        sides = [*pair] if is_sequence else []
        if len(sides) != 2 or not all(isinstance(side, str) for side in sides):
            raise ConfigError(f"pair {number} is {quoted(pair)}; a pair has two strings")
    return [TextPair(first.strip(), second.strip(), first) for first, second in pairs]


def _normalized(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)


def _pairs(given: WordPairs) -> Iterator[Pair]:
    pairs: list[Any] = [given] if isinstance(given, str) else list(given)
    if len(pairs) == 2 and all(isinstance(side, str) for side in pairs):
        pairs = [(pairs[0], pairs[1])]
    for number, pair in enumerate(pairs, 1):
        if isinstance(pair, str) or len(pair) != 2:
            raise ConfigError(
                f"pair {number} is {quoted(pair)}; a pair has two sentences, each a string or "
                "a list of words"
            )
        yield Pair(f"pair {number}", _words(pair[0]), _words(pair[1]))


def _words(sentence: Words) -> list[str]:
    return SPLITS["spaces"](sentence) if isinstance(sentence, str) else list(sentence)


@partial(jax.jit, static_argnames=("model",), compiler_options=QUICK)
def _filled(
    params: encoder.Params, tokens: jax.Array, places: jax.Array, model: Model
) -> jax.Array:
    """Probabilities float32 [places, vocabulary] at places of a row, int32 [1, length]."""
    nobody = jnp.full((1, 2), -1)  # the language is not known
    hidden = encoder.apply(params, model, whole_examples(model, tokens, nobody))[0, places]
    words = params["embeddings"]["word"]
    vectors, table, bias = heads.predict(params[_HEAD], words, model, hidden)
    return jax.nn.softmax(vectors @ table.T + bias)
