"""Back-translation masked language modelling (BTMLM): predictions with generated pseudo-tokens."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlj.config import Model
from xlj.data.rows.draws import sampling_rates
from xlj.data.rows.store import Corpus
from xlj.data.tokenizer.layout import EOS, PAD, SPECIALS
from xlj.models import encoder
from xlj.models.dropout import Rngs
from xlj.models.segments import languages_of, segments, whole_examples
from xlj.objectives.btmlm.options import BackTranslation
from xlj.objectives.camlm.loss import UNSEEN
from xlj.objectives.corruption import Masked, at_positions, mask_tokens, split
from xlj.objectives.mlm.head import predict
from xlj.objectives.mlm.loss import blind_share, gather, prediction_loss, prediction_part
from xlj.objectives.objective import ByMicrobatch, Loss, Losses, Objective, Rows, check_rows
from xlj.objectives.vocabulary.logits import choose
from xlj.sharding.trees import Params


class BTMLMInputs(NamedTuple):
    """Rows of sentences `<s> A </s>`, each followed by placeholders for pseudo-tokens.

    Placeholders are `<mask>` until `targets` replaces them by pseudo-tokens.
    """

    masked: Masked
    """Input of the second stage: sentences are masked."""
    source: jax.Array
    """Input of the first stage, int32 [rows, length]: sentences are not masked."""
    positions: jax.Array
    """Index in the row of each placeholder, int32 [rows, placeholders]."""
    used: jax.Array
    """Which of `positions` have a placeholder, bool [rows, placeholders]."""
    targets: jax.Array
    """The target language of each token's example, as an index into `Corpus.languages`, int32
    [rows, length]."""
    sample_rngs: jax.Array
    """A random key for each row, [rows]."""

    def check(self, function: str) -> None:
        """Checks the arrays with `xlj.contracts.arrays.check`."""
        self.masked.check(
            function,
            source=("int32 [rows, length]", self.source),
            placeholder_positions=("int32 [rows, placeholders]", self.positions),
            used=("bool [rows, placeholders]", self.used),
            targets=("int32 [rows, length]", self.targets),
            sample_rngs=("key [rows]", self.sample_rngs),
        )


def objective(
    name: str, options: BackTranslation, model: Model, corpus: Corpus
) -> Objective[BTMLMInputs, object]:
    """Builds the objective BTMLM (ERNIE-M section 3.2).

    Stage 1 replaces the placeholders after each sentence by pseudo-tokens of another language. It
    uses the current parameters, without gradient. A placeholder sees the unmasked sentence, but no
    placeholder. Stage 2 predicts masked tokens from the masked sentence and the pseudo-tokens.

    In models with local layers, there is a second loss `NAME_blind` of weight 0. It is the share of
    placeholders that see no token of their sentence in local layers.
    """
    probabilities, of_blind = target_probabilities(corpus, options.target_alpha), f"{name}_blind"

    def targets(
        params: Params, state: object, inputs: BTMLMInputs, by_microbatch: ByMicrobatch
    ) -> BTMLMInputs:
        return by_microbatch(partial(fill, params, model, options), inputs)

    def loss(params: Params, state: object, inputs: BTMLMInputs, rngs: Rngs) -> Losses:
        masked = inputs.masked
        whole = whole_examples(model, masked.tokens, masked.languages)
        if whole.languages is not None:
            is_placeholder = at_positions(inputs.positions, inputs.used, masked.tokens.shape[1])
            languages = jnp.where(is_placeholder, inputs.targets, whole.languages)
            whole = whole._replace(languages=languages)
        hidden = encoder.apply(params, model, whole, rngs)
        head = params["prediction_head"]
        losses = {name: prediction_loss(params, head, model, hidden, masked)}
        if model.local_attention:
            used = inputs.used.astype(jnp.float32)
            generation = _generation_inputs(model, inputs)
            losses[of_blind] = blind_share(model, generation, inputs.positions, used)
        return losses

    def count(inputs: BTMLMInputs) -> dict[str, jax.Array]:
        counts = {name: inputs.masked.weights.sum(1)}
        if model.local_attention:
            counts[of_blind] = inputs.used.sum(1).astype(jnp.float32)
        return counts

    return Objective(
        losses={name: Loss(options.weight, over_vocabulary=True)}
        | ({of_blind: Loss(0.0)} if model.local_attention else {}),
        corrupt=partial(
            corrupt,
            options=options,
            vocabulary_size=corpus.vocabulary_size,
            probabilities=probabilities,
        ),
        count=count,
        loss=loss,
        parts=prediction_part(model, corpus),
        targets=targets,
    )


def max_placeholders(length: int) -> int:
    """Returns the largest number of placeholders in a row of `length` tokens.

    It is a quarter of the tokens, rounded up. The shortest example has four tokens: `<s>`, one
    token of text, `</s>` and one placeholder.
    """
    return -(-length // 4)


def target_probabilities(corpus: Corpus, alpha: float) -> np.ndarray:
    """Returns the probabilities of target languages, float32 [source languages, target languages].

    The probability of target language j is proportional to m_j^alpha, where m_j is the number of
    tokens of monolingual text in language j. The source language has probability 0. If at least two
    languages with text have pairs, all other languages have probability 0, since CAMLM trains
    predictions only in languages with pairs.
    """
    of_language = dict(zip(corpus.languages, corpus.tokens, strict=True))
    names = [name for name, tokens in of_language.items() if tokens]
    names = [name for name in names if name in corpus.paired] or names
    if len(names) == 1 and len(corpus.languages) > 1:
        # Sentences of the single language need another target language.
        names = [name for name, tokens in of_language.items() if tokens]
    shares = sampling_rates({name: of_language[name] for name in names}, alpha)
    row = np.array([shares.get(name, 0.0) for name in corpus.languages])
    table = np.where(np.eye(len(row), dtype=bool), 0.0, row)
    return (table / np.maximum(table.sum(1, keepdims=True), 1e-30)).astype(np.float32)


def corrupt(
    rows: Rows,
    rngs: jax.Array,
    *,
    options: BackTranslation,
    vocabulary_size: int,
    probabilities: np.ndarray,
) -> BTMLMInputs:
    """Draws masks and target languages.

    A sentence of n tokens gets ceil(pseudo_ratio * n) placeholders. Its other slots become padding.

    Args:
      rows: rows of the kind `sentences`. After each `</s>` come the slots of the sentence: `<mask>`
        tokens.
      rngs: a random key for each row, [rows].
      probabilities: the result of `target_probabilities`.
    """
    check_rows(
        "btmlm.corrupt",
        rows,
        rngs=("key [rows]", rngs),
        probabilities=("float32 [languages, languages]", probabilities),
    )
    mask_rngs, target_rngs, sample_rngs = split(rngs, 3)
    # [rows, length] is the shape of all arrays up to `masked`.
    tokens = rows["tokens"].astype(jnp.int32)
    layout = segments(tokens)
    indices = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    end = jax.lax.cummax(jnp.where(tokens == EOS, indices, 0), axis=1)
    # For each slot: its zero-based number after `</s>`, and the number of tokens of its sentence
    # without `<s>` and `</s>`. A slot's position counts `<s>`, these tokens, `</s>` and the earlier
    # slots.
    place = indices - end - 1
    length = layout.position - place - 2
    count = jnp.ceil(options.pseudo_ratio * length - 1e-4)  # 1e-4: against rounding errors
    is_slot = (layout.side == 1) & (tokens == vocabulary_size - 1)
    is_placeholder = is_slot & (place < count)
    source = jnp.where(is_slot & ~is_placeholder, PAD, tokens)
    masked = mask_tokens({**rows, "tokens": source}, mask_rngs, options, vocabulary_size)
    placeholders = max_placeholders(tokens.shape[1])
    # False sorts before True, so the indices of placeholders come first, in order.
    positions = jnp.argsort(~is_placeholder, axis=1, stable=True)[:, :placeholders].astype(
        jnp.int32
    )
    logits = jnp.log(jnp.maximum(jnp.asarray(probabilities), 1e-30))[rows["languages"][:, 0]]
    drawn = jax.vmap(lambda rng, row: jax.random.categorical(rng, row, shape=tokens.shape[1:]))(
        target_rngs, logits
    )  # [rows, length]: entry n is the target language of example n of the row
    return BTMLMInputs(
        masked=masked,
        source=source,
        positions=positions,
        used=jnp.take_along_axis(is_placeholder, positions, axis=1),
        targets=jnp.take_along_axis(drawn, layout.segment, axis=1).astype(jnp.int32),
        sample_rngs=sample_rngs,
    )


def _generation_inputs(model: Model, inputs: BTMLMInputs) -> encoder.Inputs:
    """Returns the encoder's inputs for stage 1, in which no token sees a placeholder."""
    layout = segments(inputs.source)
    is_placeholder = at_positions(inputs.positions, inputs.used, inputs.source.shape[1])
    languages = None
    if model.language_embeddings != "none":
        token_languages = jnp.full_like(inputs.source, -1)
        if model.language_embeddings == "all":
            token_languages = languages_of(layout, inputs.masked.languages)
        languages = jnp.where(is_placeholder, inputs.targets, token_languages)
    return encoder.Inputs(
        inputs.source,
        layout.position,
        layout.segment,
        jnp.where(is_placeholder, UNSEEN, layout.segment),
        languages,
        layout.side,
    )


def fill(
    params: Params, model: Model, options: BackTranslation, inputs: BTMLMInputs
) -> BTMLMInputs:
    """Replaces the placeholders in the rows of both stages by pseudo-tokens."""
    inputs.check("fill")
    hidden = encoder.apply(params, model, _generation_inputs(model, inputs))
    table, head = params["embeddings"]["word"], params["prediction_head"]
    # vectors: [rows, placeholders, hidden]
    vectors, table, bias = predict(head, table, model, gather(hidden, inputs.positions))
    # Specials, and the last token, `<mask>`, are never pseudo-tokens.
    bias = bias.at[: len(SPECIALS)].set(-jnp.inf).at[-1].set(-jnp.inf)
    rows, placeholders = inputs.positions.shape
    sampled = options.generation == "sample"
    rngs = split(inputs.sample_rngs, placeholders).T.reshape(-1) if sampled else None
    flat = vectors.reshape(rows * placeholders, -1)
    pseudo = choose(flat, table, bias, jnp.dtype(model.dtype), rngs).reshape(rows, placeholders)
    at_row = jnp.arange(rows)[:, None]

    def fill_tokens(tokens: jax.Array) -> jax.Array:
        old = jnp.take_along_axis(tokens, inputs.positions, axis=1)
        return tokens.at[at_row, inputs.positions].set(jnp.where(inputs.used, pseudo, old))

    masked = inputs.masked
    return inputs._replace(
        masked=masked._replace(tokens=fill_tokens(masked.tokens)),
        source=fill_tokens(inputs.source),
    )
