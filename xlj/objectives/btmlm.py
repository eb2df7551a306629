"""Back-translation masked language modelling: pseudo-tokens in another language help to predict."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlj.config import Model
from xlj.config.objectives.btmlm import BackTranslation
from xlj.data.rows.corpus import Corpus
from xlj.data.rows.draws import rates
from xlj.data.tokenizer.layout import EOS, PAD, SPECIALS
from xlj.models import encoder, heads
from xlj.models.dropout import Rngs
from xlj.objectives.camlm import UNSEEN
from xlj.objectives.choosing import choose
from xlj.objectives.corruption import Masked, at_positions, mask_tokens, split
from xlj.objectives.flops import Operations, of_layers, of_predictions
from xlj.objectives.mlm import blind, flops, gather, predicted, prediction_part
from xlj.objectives.objective import ByMicrobatch, Loss, Losses, Objective, Params, Rows
from xlj.objectives.segments import languages_of, segments, whole_examples


class Corrupted(NamedTuple):
    """Rows of `<s> A </s>` and placeholders, before and after the placeholders are filled."""

    masked: Masked
    """The second stage: source tokens masked; its placeholders are `<mask>` until `targets`."""
    source: jax.Array
    """The first stage: int32 [rows, length], source tokens as they are, placeholders `<mask>`."""
    positions: jax.Array
    """Of placeholders, int32 [rows, places]."""
    used: jax.Array
    """Which of `positions` are placeholders, bool [rows, places]."""
    targets: jax.Array
    """The target language of each token's example, int32 [rows, length]."""
    sample_rngs: jax.Array
    """A random key of each row [rows]."""

    def check(self, function: str) -> None:
        """Checks these, as `xlj.contracts.arrays.check`."""
        self.masked.check(
            function,
            source=("int32 [rows, length]", self.source),
            places=("int32 [rows, places]", self.positions),
            used=("bool [rows, places]", self.used),
            targets=("int32 [rows, length]", self.targets),
            sample_rngs=("key [rows]", self.sample_rngs),
        )


def objective(
    name: str, options: BackTranslation, model: Model, corpus: Corpus
) -> Objective[Corrupted, object]:
    """BTMLM (ERNIE-M section 3.2).

    Stage 1, with the current parameters and no gradient: placeholders behind a sentence are filled
    with pseudo-tokens of another language; they see the whole sentence, unmasked, and not each
    other. Stage 2: masked tokens of the sentence are predicted from it and the pseudo-tokens.

    In local layers the sentence may lie outside a placeholder's window. How often it does is
    counted, as `NAME_blind`: a measure beside the loss, of weight 0.
    """
    probabilities, of_blind = target_probabilities(corpus, options.target_alpha), f"{name}_blind"

    def targets(
        params: Params, state: object, inputs: Corrupted, by_microbatch: ByMicrobatch
    ) -> Corrupted:
        return by_microbatch(partial(fill, params, model, options), inputs)

    def loss(params: Params, state: object, inputs: Corrupted, rngs: Rngs) -> Losses:
        masked = inputs.masked
        whole = whole_examples(model, masked.tokens, masked.languages)
        if whole.languages is not None:
            placed = at_positions(inputs.positions, inputs.used, masked.tokens.shape[1])
            whole = whole._replace(languages=jnp.where(placed, inputs.targets, whole.languages))
        hidden = encoder.apply(params, model, whole, rngs)
        found = {name: predicted(params, params["prediction_head"], model, hidden, masked)}
        if model.local_attention:
            used = inputs.used.astype(jnp.float32)
            found[of_blind] = blind(model, _of_generation(model, inputs), inputs.positions, used)
        return found

    def count(inputs: Corrupted) -> dict[str, jax.Array]:
        found = {name: inputs.masked.weights.sum(1)}
        if model.local_attention:
            found[of_blind] = inputs.used.sum(1).astype(jnp.float32)
        return found

    def all_flops(rows: int, length: int) -> Operations:
        generation = of_layers(model, model.layers, rows, length)
        generation += of_predictions(model, corpus.vocabulary_size, rows * places_in(length))
        return generation + flops(rows, length, options=options, model=model, corpus=corpus)

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
        flops=all_flops,
        parts=prediction_part(model, corpus),
        targets=targets,
    )


def places_in(length: int) -> int:
    """The most placeholders in a row: at most one token in four of any example is a slot (that of
    a sentence of one token)."""
    return -(-length // 4)


def target_probabilities(corpus: Corpus, alpha: float) -> np.ndarray:
    """How likely each language is the target for a source language, float32 [languages, languages].

    p_j ~ m_j^alpha over the languages with monolingual text, without the source's own; if there are
    pairs, over those that stand in one, since CAMLM teaches no other to be predicted in.
    """
    of_language = dict(zip(corpus.languages, corpus.tokens, strict=True))
    names = [name for name, tokens in of_language.items() if tokens]
    names = [name for name in names if name in corpus.paired] or names
    if len(names) == 1 and len(corpus.languages) > 1:  # its own sentences need another target
        names = [name for name, tokens in of_language.items() if tokens]
    shares = rates({name: of_language[name] for name in names}, alpha)
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
) -> Corrupted:
    """Draws masks and target languages, and keeps ceil(pseudo_ratio * n) placeholders of a sentence
    of n tokens; the slots left over become padding.

    Args:
      rows: of the kind `sentences`: slots for the largest ratio stand behind each `</s>`.
    """
    rows.check(
        "btmlm.corrupt",
        rngs=("key [rows]", rngs),
        probabilities=("float32 [languages, languages]", probabilities),
    )
    mask_rngs, target_rngs, sample_rngs = split(rngs, 3)
    tokens = rows.tokens.astype(jnp.int32)
    layout = segments(tokens)
    indices = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    end = jax.lax.cummax(jnp.where(tokens == EOS, indices, 0), axis=1)
    # A slot's place behind `</s>`; the sentence's length follows from the slot's position.
    place = indices - end - 1
    length = layout.position - place - 2
    wanted = jnp.ceil(options.pseudo_ratio * length - 1e-4)
    is_slot = (layout.side == 1) & (tokens == vocabulary_size - 1)
    is_placeholder = is_slot & (place < wanted)
    source = jnp.where(is_slot & ~is_placeholder, PAD, tokens)
    masked = mask_tokens(rows._replace(tokens=source), mask_rngs, options, vocabulary_size)
    places = places_in(tokens.shape[1])
    positions = jnp.argsort(~is_placeholder, axis=1, stable=True)[:, :places].astype(jnp.int32)
    logits = jnp.log(jnp.maximum(jnp.asarray(probabilities), 1e-30))[rows.languages[:, 0]]
    drawn = jax.vmap(lambda rng, row: jax.random.categorical(rng, row, shape=tokens.shape[1:]))(
        target_rngs, logits
    )
    return Corrupted(
        masked=masked,
        source=source,
        positions=positions,
        used=jnp.take_along_axis(is_placeholder, positions, axis=1),
        targets=jnp.take_along_axis(drawn, layout.segment, axis=1).astype(jnp.int32),
        sample_rngs=sample_rngs,
    )


def _of_generation(model: Model, inputs: Corrupted) -> encoder.Inputs:
    """The encoder's inputs of stage 1: no token sees a placeholder."""
    layout = segments(inputs.source)
    placed = at_positions(inputs.positions, inputs.used, inputs.source.shape[1])
    languages = None
    if model.language_embeddings != "none":
        others = jnp.full_like(inputs.source, -1)
        if model.language_embeddings == "all":
            others = languages_of(layout, inputs.masked.languages)
        languages = jnp.where(placed, inputs.targets, others)
    return encoder.Inputs(
        inputs.source,
        layout.position,
        layout.segment,
        jnp.where(placed, UNSEEN, layout.segment),
        languages,
        layout.side,
    )


def fill(params: Params, model: Model, options: BackTranslation, inputs: Corrupted) -> Corrupted:
    """Stage 1: the placeholders of both stages' rows filled with pseudo-tokens, never specials."""
    inputs.check("fill")
    hidden = encoder.apply(params, model, _of_generation(model, inputs))
    table, head = params["embeddings"]["word"], params["prediction_head"]
    vectors, table, bias = heads.predict(head, table, model, gather(hidden, inputs.positions))
    bias = bias.at[: len(SPECIALS)].set(-jnp.inf).at[-1].set(-jnp.inf)
    rows, places = inputs.positions.shape
    sampled = options.generation == "sample"
    rngs = split(inputs.sample_rngs, places).T.reshape(-1) if sampled else None
    flat = vectors.reshape(rows * places, -1)
    pseudo = choose(flat, table, bias, jnp.dtype(model.dtype), rngs).reshape(rows, places)
    at_row = jnp.arange(rows)[:, None]

    def filled(tokens: jax.Array) -> jax.Array:
        old = jnp.take_along_axis(tokens, inputs.positions, axis=1)
        return tokens.at[at_row, inputs.positions].set(jnp.where(inputs.used, pseudo, old))

    masked = inputs.masked
    return inputs._replace(
        masked=masked._replace(tokens=filled(masked.tokens)), source=filled(inputs.source)
    )
