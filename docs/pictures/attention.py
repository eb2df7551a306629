"""Draws the attention patterns of the objectives that predict masked tokens.

Each pattern is computed by the code of the objective from an example row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pictures.svg import Drawing
from xlj.config import Model
from xlj.data.tokenizer.layout import BOS, EOS, SPECIALS
from xlj.models import encoder
from xlj.objectives.btmlm import loss as btmlm
from xlj.objectives.camlm import loss as camlm
from xlj.objectives.corruption import Masked
from xlj.objectives.mlm import loss as mlm

MASK = "<mask>"
LEFT, CELL = 78, 24


@dataclasses.dataclass(frozen=True)
class Example:
    """A row of tokens, and the indices of predicted tokens."""

    tokens: Sequence[str]
    predicted: Sequence[int]

    @property
    def read(self) -> list[str]:
        """The tokens that the encoder reads: predicted tokens are masked."""
        return [MASK if i in self.predicted else token for i, token in enumerate(self.tokens)]

    def ids(self, tokens: Sequence[str]) -> jax.Array:
        """Returns the ids of tokens, int32 [1, length]. The mask has the last id of the
        vocabulary."""
        known = {"<s>": BOS, "</s>": EOS}
        words = sorted({*self.tokens, *tokens} - {*known, MASK})
        known |= {word: len(SPECIALS) + place for place, word in enumerate(words)}
        known[MASK] = len(SPECIALS) + len(words)
        return jnp.array([[known[token] for token in tokens]], jnp.int32)

    def masked(self) -> Masked:
        """Returns the row in the form of `corruption.mask_tokens`."""
        places = jnp.array([self.predicted], jnp.int32)
        original = self.ids(self.tokens)
        return Masked(
            tokens=self.ids(self.read),
            positions=places,
            labels=jnp.take_along_axis(original, places, axis=1),
            weights=jnp.ones(places.shape, jnp.float32),
            languages=jnp.array([[0, 1]], jnp.int32),
        )


TEXT = Example("<s> the cat sleeps </s> <s> it rains </s>".split(), [2, 7])
PAIR = Example("<s> the cat sleeps </s> die Katze schläft </s>".split(), [2, 7])


def sees(inputs_of: Callable[[Model, Any], encoder.Inputs], row: Any) -> np.ndarray:
    """Computes which query sees which key in a row: where the segment ids are equal.

    Args:
      inputs_of: function of the objective that makes the encoder's inputs from a corrupted row.
      row: the corrupted row.

    Returns:
      bool [query, key].
    """
    inputs = jax.jit(inputs_of, static_argnums=0)(Model(), row)
    queries, keys = np.array(inputs.query_segment_ids[0]), np.array(inputs.key_segment_ids[0])
    return queries[:, None] == keys[None, :]


def grid(
    drawing: Drawing,
    top: float,
    tokens: Sequence[str],
    pattern: np.ndarray,
    predictions: Mapping[int, str],
    notes: Mapping[int, str],
) -> float:
    """Draws a pattern: a row for each query, a column for each key.

    Args:
      top: the baseline of the line above.
      tokens: the tokens that the encoder reads.
      pattern: bool [query, key], whether the query sees the key.
      predictions: the predicted token, by its index in the row.
      notes: text to the right of a row of the grid, by the index of the token.

    Returns:
      The height at which the grid ends.
    """
    top += 72  # `<mask>`, upright, in a wide font
    drawing.text(LEFT - 8, top - 24, "key →", "end soft small")
    drawing.text(LEFT - 8, top - 8, "query ↓", "end soft small")
    for place, token in enumerate(tokens):
        is_predicted = place in predictions
        drawing.upright(LEFT + place * CELL + CELL / 2 + 4, top - 6, token, "soft")
        y = top + place * CELL
        if is_predicted:
            drawing.box(6, y, 408, CELL, "asked", 3)
        drawing.text(LEFT - 8, y + 16.5, token, "end ask" if is_predicted else "end")
        for key in range(len(tokens)):
            box = LEFT + key * CELL + 1.5, y + 1.5, CELL - 3, CELL - 3
            drawing.box(*box, "see" if pattern[place, key] else "blank", 3)
        right = LEFT + len(tokens) * CELL + 8
        if is_predicted:
            drawing.text(right, y + 16.5, f"→ {predictions[place]}", "ask")
        elif place in notes:
            drawing.text(right, y + 16.5, notes[place], "soft small")
    return top + len(tokens) * CELL


def legend(drawing: Drawing, top: float, asked: str = "predicts") -> float:
    """Draws the legend of colours; returns the height at which it ends."""
    drawing.box(LEFT, top + 8, 14, 14, "see", 3)
    drawing.text(LEFT + 20, top + 20, "the query sees the key", "soft small")
    drawing.box(LEFT + 166, top + 8, 14, 14, "asked", 3)
    drawing.text(LEFT + 186, top + 20, asked, "soft small")
    return top + 26


def _draw_pattern(
    title: str,
    heading: str,
    example: Example,
    inputs_of: Callable[[Model, Masked], encoder.Inputs],
    notes: Mapping[int, str],
) -> str:
    drawing = Drawing(title)
    drawing.text(12, 22, heading, "strong")
    pattern = sees(inputs_of, example.masked())
    predictions = {place: example.tokens[place] for place in example.predicted}
    end = grid(drawing, 22, example.read, pattern, predictions, notes)
    legend(drawing, end)
    return drawing.render()


def masked_text() -> str:
    """Draws MMLM on a packed row with two examples."""
    return _draw_pattern(
        "MMLM: a masked token is predicted from its own example of the row",
        "MMLM: a row of text with two examples",
        TEXT,
        mlm.whole,
        {0: "first example", 5: "second example"},
    )


def translation() -> str:
    """Draws TLM on a pair."""
    return _draw_pattern(
        "TLM: a masked token is predicted from both sentences of the pair",
        "TLM: a sentence pair, read together",
        PAIR,
        mlm.whole,
        {0: "English", 5: "German"},
    )


def cross_attention() -> str:
    """Draws CAMLM on a pair."""
    return _draw_pattern(
        "CAMLM: a masked token sees only the other sentence, and no token sees it",
        "CAMLM: each sentence predicted from the other",
        PAIR,
        camlm.inputs_of,
        {0: "English", 5: "German"},
    )


def back_translation() -> str:
    """Draws the two stages of BTMLM on a sentence with two pseudo-tokens."""
    sentence = Example("<s> the cat sleeps on my bed </s>".split(), [2, 4])
    pseudo, length = ["die", "Katze"], len(sentence.tokens)
    places = [length, length + 1]
    source = [*sentence.tokens, MASK, MASK]
    filled = Example([*sentence.tokens, *pseudo], sentence.predicted)
    masked = filled.masked()
    position = jnp.array([places], jnp.int32)
    corrupted = btmlm.BTMLMInputs(
        masked=masked,
        source=filled.ids(source),
        positions=position,
        used=jnp.ones(position.shape, bool),
        targets=jnp.ones((1, len(source)), jnp.int32),
        sample_rngs=jax.random.split(jax.random.key(0), 1),
    )
    first, second = sees(btmlm._generation_inputs, corrupted), sees(mlm.whole, masked)
    drawing = Drawing(
        "BTMLM: stage 1 fills placeholders with pseudo-tokens of another language; stage 2 "
        "predicts masked tokens from the sentence and the pseudo-tokens"
    )
    drawing.text(12, 22, "BTMLM, stage 1: generate, without gradient", "strong")
    drawing.text(12, 40, "Placeholders have the embedding of the target language.", "soft small")
    generated = dict(zip(places, pseudo, strict=True))
    end = grid(drawing, 40, source, first, generated, {0: "not masked"})
    end = legend(drawing, end, "generates") + 22
    drawing.text(12, end + 12, "Stage 2: predict, with gradient", "strong")
    predictions = {place: filled.tokens[place] for place in filled.predicted}
    notes = {places[0]: "pseudo-tokens"}
    end = grid(drawing, end + 12, filled.read, second, predictions, notes)
    legend(drawing, end)
    return drawing.render()
