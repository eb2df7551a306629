"""A trained encoder and its uses: sentence vectors, retrieval, word alignment, masked words."""

import dataclasses
import functools
import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from xlj.api import mteb_model
from xlj.api.results import Alignments, Labels
from xlj.api.sentence_encoder import SentenceEncoder
from xlj.checkpoints.digests import digests
from xlj.config import ConfigError, Model
from xlj.config.choices import COMPUTE_TYPES, ENCODINGS, AlignmentOptions
from xlj.config.fields import check_choice
from xlj.config.paths import local_path
from xlj.conversion.exporting import export
from xlj.data.labelled.examples import Example
from xlj.data.labelled.examples import Words as TaggedWords
from xlj.data.labelled.kind import TaskKind
from xlj.data.tokenizer.layout import BOS, EOS
from xlj.inference import pretrained
from xlj.inference.predictor import Labeller, task_of
from xlj.inference.pretrained import Pretrained
from xlj.interop.sentence_modules import SentenceModules
from xlj.io.quoting import quoted
from xlj.models import encoder
from xlj.models.embeddings import FIRST_POSITION
from xlj.models.segments import whole_examples
from xlj.objectives.mlm.head import predict
from xlj.retrieval.embedder import Embedder
from xlj.retrieval.pair_scores import PairScorer, TextPair
from xlj.sharding.meshes import QUICK, one_device
from xlj.word_alignment import defaults
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.gold_alignments import SPLITS
from xlj.word_alignment.methods import METHODS
from xlj.word_alignment.sentence_pairs import Pair

MASK = "<mask>"
_HEAD = "prediction_head"

Words = str | Sequence[str]
"""A sentence whose words are separated by spaces, or a list of words."""
WordPairs = tuple[str, str] | Iterable[tuple[Words, Words]]
"""Pairs of sentences; two strings are one pair."""


class Filling(NamedTuple):
    """A predicted piece for a `<mask>`, as text (`Vocabulary.text_of`), and its probability."""

    piece: str
    probability: float


class AlignmentChoices(TypedDict, total=False):
    """Options of alignment other than layer and method. `Encoder.aligner` describes them."""

    together: bool | None
    prior: float | None
    threshold: float


def load_encoder(
    path: str | Path, device: str | None = None, compute: str | None = None
) -> "Encoder":
    """Loads an encoder with JAX (`loading.load`)."""
    loaded = pretrained.load(path, device)
    encoder = (TaskEncoder if loaded.task else Encoder)(loaded, str(path))
    return encoder.in_type(compute) if compute else encoder


class Encoder(SentenceEncoder):
    """A trained encoder.

    In all methods, layer 0 is the embeddings. The default layer is the one nearest to two thirds of
    the depth, such as 8 of 12. For alignment, the model's config may set another default
    (`evaluation.alignment.layer`).

    Methods that compute sentence vectors truncate sentences that are too long for the model, with a
    warning. Alignment encodes such sentences in overlapping windows.

    Attributes:
      pretrained: the parameters, sizes and vocabulary.
      source: the path that the encoder was loaded from; empty if it was not loaded from a path.
    """

    def __init__(self, pretrained: Pretrained, source: str = ""):
        self.pretrained, self.source = pretrained, source

    if TYPE_CHECKING:

        def predict(self, texts: Any, *, show_progress_bar: bool | None = None) -> Labels:
            """A method of `TaskEncoder` only."""
            raise NotImplementedError
    else:

        def __getattr__(self, name: str) -> Any:
            if name == "predict":
                try:
                    task_of(None, (), self.source)
                except ConfigError as error:
                    raise _NoTask(str(error)) from None
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        model, size = self.pretrained.model, self.pretrained.vocabulary.size
        numbers = sum(leaf.size for leaf in jax.tree.leaves(self.pretrained.params))
        source = f" of {self.source}" * bool(self.source)
        return (
            f"<xlj.Encoder{source}: {model.layers} layers of {model.hidden}, {size:,} pieces, "
            f"up to {model.positions - FIRST_POSITION} tokens, {numbers:,} parameters on "
            f"{self.device}; aligns by {self.alignment_options().method}>"
        )

    @property
    def device(self) -> str:
        """The device on which the encoder computes, such as `cpu:0`."""
        (device, *_) = jax.tree.leaves(self.pretrained.params)[0].devices()
        return f"{device.platform}:{device.id}"

    @property
    def layers(self) -> int:
        """The number of layers."""
        return self.pretrained.model.layers

    def embedder(
        self,
        layers: Sequence[int] = (),
        pooling: str | None = None,
        batch_size: int | None = None,
        prompt: str | None = None,
        prompt_text: str | None = None,
        truncate_dim: int | None = None,
    ) -> Embedder:
        """Returns the `Embedder` that `embed` uses. It also embeds streams of sentences, and
        computes vectors of several layers.

        The arguments are those of `SentenceEncoder.embedder`.
        """
        return Embedder(
            self.pretrained, layers, pooling, batch_size, prompt, prompt_text, truncate_dim
        )

    @property
    def sentence_modules(self) -> SentenceModules | None:
        """The model's sentence-transformers modules; None if it has none."""
        return self.pretrained.sentence

    def in_type(self, compute: str) -> "Encoder":
        """Returns this encoder with another type of matrix products, one of
        `choices.COMPUTE_TYPES`. Both share the parameters."""
        check_choice("compute", compute, COMPUTE_TYPES)
        model = dataclasses.replace(self.pretrained.model, dtype=compute)
        return type(self)(self.pretrained._replace(model=model), self.source)

    def aligner(
        self,
        layers: Sequence[int] = (),
        method: str | None = None,
        together: bool | None = None,
        prior: float | None = None,
        threshold: float = 0.0,
    ) -> Aligner:
        """Returns the `Aligner` that `align` uses. It also aligns streams of pairs, with several
        layers, and computes confidences of links (`Aligner.scored`).

        If an argument is None, the option in the model's config is used (`alignment_options`).

        Args:
          layers: layers whose hidden vectors to compare; empty for the default layer.
          method: one of `methods`; docs/align.md describes each method.
          together: whether to encode a pair as one example. If False, each sentence is encoded
            separately.
          prior: strength of the prior that favours links near the diagonal; 0 for no prior.
          threshold: links with a lower confidence are dropped.

        Raises:
          ConfigError: if there is no such method, or the model has no parameters for it.
        """
        encode = None if together is None else ENCODINGS[0 if together else 1]
        options = self.alignment_options(method=method, encode=encode, prior=prior)
        return Aligner(self.pretrained, options, layers, threshold)

    def alignment_options(self, **choices: Any) -> AlignmentOptions:
        """Returns the alignment options of this model, with changes.

        Args:
          choices: values of fields of `AlignmentOptions`. For None and for missing fields, the
            value in the model's config (`evaluation.alignment`) is used or, if the config has no
            value, the value that `word_alignment.defaults` chooses for the model.

        Returns:
          The options. Their `layer` is the number of a layer, never -1, and no value is `auto`.
        """
        changes = {name: value for name, value in choices.items() if value is not None}
        options = dataclasses.replace(self.pretrained.alignment, **changes)
        return defaults.resolve(options, self.pretrained)

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the alignment methods that this model supports."""
        return tuple(n for n, method in METHODS.items() if method.can_use(self.pretrained.params))

    def _check_device(self, device: Any) -> None:
        """Refuses another device than that of the encoder."""
        if device is None:
            return
        name = str(device)  # a torch.device has the name of a device as text
        (wanted,) = one_device(name).devices.flat
        if f"{wanted.platform}:{wanted.id}" != self.device:
            raise ConfigError(
                f"device={name!r}: this encoder is on {self.device}; load it on another device "
                f"with xlj.load(path, device={name!r})"
            )

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of the parameters, the vocabulary and the sentence-transformers modules."""
        modules = self.pretrained.sentence.record() if self.pretrained.sentence else None
        values = [digests(self.pretrained.params), self.pretrained.vocabulary.digest, modules]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    @functools.cached_property
    def mteb_model_meta(self) -> Any:
        """The `ModelMeta` that mteb asks of a model. mteb must be installed: `.[mteb]`."""
        model, leaves = self.pretrained.model, jax.tree.leaves(self.pretrained.params)
        return mteb_model.metadata(
            self.pretrained.sentence,
            self.source,
            self.digest,
            self.embedder().width,
            sum(leaf.size for leaf in leaves),
            model.positions - FIRST_POSITION,
            "JAX",
        )

    def save_pretrained(
        self, folder: str | Path, layer: int | None = None, pooling: str | None = None
    ) -> None:
        """Writes a Hugging Face folder for transformers and sentence-transformers, as `python -m
        xlj.convert export` does.

        sentence-transformers pools the last exported layer. `embed` pools a middle layer by
        default, so its vectors differ unless `layer` is set.

        Args:
          folder: a new folder.
          layer: the last layer to export; None for all layers.
          pooling: pooling in sentence-transformers, `mean` or `first`. None exports the
            sentence-transformers modules of the folder that the encoder was loaded from. If there
            are no such modules, or if `layer` is set, None means `mean`.

        Raises:
          ConfigError: if the encoder was not loaded from a path, the folder exists already, there
            is no such layer or pooling, or no architecture of transformers computes the same
            outputs.
        """
        if pooling is None and (layer is not None or not self.pretrained.sentence):
            pooling = "mean"
        if pooling is not None:
            check_choice("pooling", pooling, ("mean", "first"))
        if not self.source:
            raise ConfigError(
                "save_pretrained needs an encoder that xlj.load loaded from a path; load it again"
            )
        output = local_path("folder", folder).absolute()
        if output.exists():
            raise ConfigError(f"folder={str(folder)!r} exists already; name a new folder")
        export(self.source, output, layer, pooling or "")

    def align(
        self,
        pairs: WordPairs,
        layer: int | None = None,
        method: str | None = None,
        **choices: Unpack[AlignmentChoices],
    ) -> Alignments:
        """Aligns the words of sentence pairs.

        Args:
          pairs: any number of pairs of sentences; two strings are one pair.
          layer: the layer whose hidden vectors to compare.
          method: one of `methods`; None for the model's default.
          choices: the arguments `together`, `prior` and `threshold` of `aligner`.

        Returns:
          A sorted list of links for each pair. A link (i, j) links word i of the first sentence to
          word j of the second sentence; words are zero-based. Notebooks display a drawing.

        Raises:
          ConfigError: if there is no such method or layer, the model has no parameters for the
            method, an item is not a pair, or a sentence has more than 8,192 pieces.
        """
        layers = [] if layer is None else [self._layer(layer)]
        return Alignments(_word_pairs(pairs), self.aligner(layers, method, **choices))

    def soft_align(
        self,
        pairs: WordPairs,
        layer: int | None = None,
        method: str | None = None,
        **choices: Unpack[AlignmentChoices],
    ) -> list[np.ndarray]:
        """Computes the soft alignment of each pair, from which the method selects links.

        The arguments and errors are those of `align`.

        Returns:
          A matrix for each pair, float32 [words of the first sentence, words of the second
          sentence], with values from 0 to 1.
        """
        layers = [] if layer is None else [self._layer(layer)]
        aligner = self.aligner(layers, method, **choices)
        return [matrices[0] for matrices in aligner.soft(_word_pairs(pairs))]

    def null_probabilities(
        self, pairs: WordPairs, **choices: Unpack[AlignmentChoices]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Computes the probability of each word that it has no counterpart in the other sentence.

        The arguments and errors are those of `align`.

        Returns:
          For each pair, the probabilities of the words of both sentences, float32 [words] each.

        Raises:
          ConfigError: also if the model was not trained on word links.
        """
        aligner = self.aligner((), "word_links", **choices)
        results = []
        for (aligned,) in aligner.scored(_word_pairs(pairs)):
            assert aligned.nulls is not None
            results.append(aligned.nulls)
        return results

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
        """Scores how well the sentences of each pair translate each other, as `xlj score` does.

        Args:
          pairs: any number of pairs of sentences; two strings are one pair.
          by: the score. `cosine`: the cosine of the two sentence vectors. `margin`: the cosine
            divided by the mean cosine of both vectors with their nearest neighbours among all
            pairs. `likelihood`: how well a model of `configs/aligner.py` generates each sentence
            from the other sentence, in nats per token above chance.
          layer, pooling, prompt: the arguments of `embed`. `likelihood` accepts only `layer`, since
            it uses vectors of tokens, not of sentences.
          show_progress_bar: None for a bar in terminals only.

        Returns:
          float32 [pairs]; NaN if a sentence is empty.

        Raises:
          ConfigError: if there is no such score, layer, pooling or prompt, the model has no
            parameters for the score, an item is not a pair of strings, or, for `likelihood`, a
            sentence has more than 8,192 pieces.
        """
        text_pairs = _text_pairs(pairs)
        layer = None if layer is None else self._layer(layer)
        scorer = PairScorer(self.pretrained, by, layer, pooling, prompt)
        hidden = None if show_progress_bar is None else not show_progress_bar
        with tqdm(total=len(text_pairs), desc="scoring", unit=" pairs", disable=hidden) as bar:
            scores = scorer.scores(text_pairs, by, bar.update)
        if scorer.embedder and scorer.embedder.truncated:
            message = "sentences truncated because they are too long for the model"
            warnings.warn(f"{message}: {scorer.embedder.truncated:,}", stacklevel=2)
        return scores

    def fill(self, text: str, top_k: int = 5) -> list[list[Filling]]:
        """Predicts the most likely pieces for each `<mask>` of a text.

        Args:
          text: a text with at least one `<mask>`.
          top_k: the number of pieces for each `<mask>`.

        Returns:
          For each `<mask>` in order, the pieces with their probabilities, best first.

        Raises:
          ConfigError: if there is no `<mask>`, the text is too long, or the model has no head for
            masked tokens (such as XLM-E's discriminator).
        """
        params, model, vocabulary, *_ = self.pretrained
        if _HEAD not in params:
            raise ConfigError(
                "fill needs a model with a head for masked tokens, which this model does not have"
            )
        if MASK not in text:
            raise ConfigError(f"the text has no {MASK}: {text!r}; write {MASK} where to predict")
        ids = [BOS, *vocabulary.encode_masked(text).tolist(), EOS]
        limit = model.positions - FIRST_POSITION
        if len(ids) > limit:
            raise ConfigError(
                f"the text has {len(ids)} tokens; this model reads at most {limit}; shorten the "
                "text"
            )
        tokens = jnp.asarray([ids])
        positions = np.flatnonzero(np.asarray(ids) == vocabulary.mask)
        probabilities = np.asarray(_mask_probabilities(params, tokens, positions, model))
        # Ids that xlj added to an imported vocabulary are not pieces of the original model.
        if vocabulary.native_size < vocabulary.size:
            probabilities = np.where(vocabulary.native_ids < 0, 0, probabilities)
            probabilities /= probabilities.sum(1, keepdims=True)
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, :top_k]
        return [
            [Filling(vocabulary.text_of(int(i)), float(row[i])) for i in ids_of_row]
            for row, ids_of_row in zip(probabilities, best, strict=True)
        ]


class TaskEncoder(Encoder):
    """An encoder that was fine-tuned for a task.

    `predict` is not a method of `Encoder`, since mteb takes a model with this method for a
    cross-encoder. `Encoder(model.pretrained)` gives mteb the vectors of a fine-tuned model.
    """

    def predict(self, texts: Any, *, show_progress_bar: bool | None = None) -> Labels:
        """Labels new text with a fine-tuned model, as `xlj predict` does.

        Args:
          texts: any number of texts; a single string or mapping is one text. A text is a string, a
            sequence, or a mapping such as `{"text": ..., "text_pair": ...}`. A sequence has the
            parts of an example (two sentences, question and context, premise and choices) or, for
            tagging, the words of a sentence.
          show_progress_bar: None for a bar in terminals only.

        Returns:
          A dict for each text. docs/predict.md lists the keys for each kind of task, such as
          `label`, `probability` and `probabilities` for classification. A tagger returns None for a
          blank string, as `xlj predict` does for a blank line.

        Raises:
          ConfigError: if the model was not fine-tuned, or a text does not fit its task.
        """
        labeller = Labeller(self.pretrained, self.source)
        items = [texts] if isinstance(texts, (str, Mapping)) else list(texts)
        examples = [
            _example(labeller.kind, text, f"text {number}") for number, text in enumerate(items)
        ]
        hidden = None if show_progress_bar is None else not show_progress_bar
        with tqdm(total=len(items), desc="labelling", unit=" texts", disable=hidden) as bar:
            labels = Labels(labeller.stream(examples, bar.update))
        cut = [f"{n} {what}" for what, n in labeller.truncated.items() if n and what != "answers"]
        if cut:
            message = f"{', '.join(cut)} were truncated: too long for the model"
            warnings.warn(message, stacklevel=2)
        return labels


class _NoTask(ConfigError, AttributeError):
    """Raised for `predict` of a model without a task, so that `hasattr` is false."""


def _example(kind: TaskKind, text: Any, place: str) -> Example | None:
    if isinstance(text, Mapping):
        return kind.from_record(text, place)
    is_tagger = kind.example is TaggedWords  # whose words may be whitespace of Unicode
    if is_tagger and isinstance(text, str) and not text.strip():
        return None
    texts = [text] if isinstance(text, str) else [*text] if isinstance(text, Sequence) else []
    if not texts or not all(
        isinstance(part, str) and (part if is_tagger else part.strip()) for part in texts
    ):
        raise ConfigError(
            f"{place} is {quoted(text)}; expected a string, a sequence of strings, or a mapping"
        )
    if is_tagger and not isinstance(text, str):
        return kind.from_record({"words": texts}, place)
    return kind.from_fields(texts, place)


_SEQUENCES = (Sequence, np.ndarray)


def _pairs(argument: Any, sides: str) -> list[Sequence[Any]]:
    """Returns a list of pairs; a single pair of strings becomes a list of one.

    Args:
      sides: what a pair must have, for errors.

    Raises:
      ConfigError: if an item is not a sequence of two.
    """
    pairs: list[Any] = [argument] if isinstance(argument, str) else list(argument)
    if len(pairs) == 2 and all(isinstance(side, str) for side in pairs):
        pairs = [(pairs[0], pairs[1])]
    for number, pair in enumerate(pairs):
        if isinstance(pair, str) or not isinstance(pair, _SEQUENCES) or len(pair) != 2:
            raise ConfigError(f"pair {number} is {quoted(pair)}; a pair must have {sides}")
    return pairs


def _text_pairs(argument: Any) -> list[TextPair]:
    pairs = _pairs(argument, "two strings")
    for number, pair in enumerate(pairs):
        if not all(isinstance(side, str) for side in pair):
            raise ConfigError(f"pair {number} is {quoted(pair)}; a pair must have two strings")
    return [TextPair(first.strip(), second.strip(), first) for first, second in pairs]


def _word_pairs(argument: WordPairs) -> list[Pair]:
    sides = "two sentences, each a string or a list of words"
    named = ((f"pair {number}", pair) for number, pair in enumerate(_pairs(argument, sides)))
    return [Pair(place, _words(pair[0], place), _words(pair[1], place)) for place, pair in named]


def _words(sentence: Any, place: str) -> list[str]:
    if isinstance(sentence, str):
        return SPLITS["spaces"](sentence)
    if not isinstance(sentence, _SEQUENCES) or not all(isinstance(w, str) for w in sentence):
        raise ConfigError(
            f"{place} has the sentence {quoted(sentence)}; expected a string or a list of words"
        )
    return list(sentence)


@partial(jax.jit, static_argnames=("model",), compiler_options=QUICK)
def _mask_probabilities(
    params: encoder.Params, tokens: jax.Array, positions: jax.Array, model: Model
) -> jax.Array:
    """Computes the probabilities of all pieces at some positions of a row.

    Args:
      tokens: int32 [1, length].
      positions: int [positions], positions in the row.

    Returns:
      float32 [positions, vocabulary].
    """
    unknown = jnp.full((1, 2), -1)  # -1: the languages of the row are unknown
    hidden = encoder.apply(params, model, whole_examples(model, tokens, unknown))[0, positions]
    words = params["embeddings"]["word"]
    vectors, table, bias = predict(params[_HEAD], words, model, hidden)
    return jax.nn.softmax(vectors @ table.T + bias)
