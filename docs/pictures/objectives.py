"""Draws the objectives that are more than an attention pattern: what they read and predict."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from pictures.svg import WIDTH, Drawing
from xlj.alignment_math import extraction
from xlj.alignment_math.sinkhorn import sinkhorn
from xlj.objectives.contrast.options import Retrieval
from xlj.objectives.dwa.options import WordAlignment
from xlj.objectives.rtd.options import TranslationRTD
from xlj.objectives.word_hmm.options import WordHMM
from xlj.objectives.xlco.options import CrossLingualContrast

MASK = "<mask>"
EDGE = 12
INNER = WIDTH - 2 * EDGE


def replaced_tokens() -> str:
    """Draws MRTD and TRTD: what the generator and the discriminator read and predict."""
    options = TranslationRTD()
    original = "<s> the cat </s> die Katze </s>".split()
    selected = {2: "dog", 4: "die"}
    read = [MASK if i in selected else token for i, token in enumerate(original)]
    replaced = [selected.get(i, token) for i, token in enumerate(original)]
    left, width = 84, 47
    drawing = Drawing(
        "MRTD and TRTD: a generator fills masked tokens; the discriminator says of every token "
        "whether it was replaced"
    )
    drawing.text(EDGE, 22, "TRTD: a sentence pair (MRTD: a row of text)", "strong")
    drawing.text(EDGE, 52, "original", "soft")
    drawing.tokens(left, 36, width, original, [""] * len(original))
    drawing.text(EDGE, 90, "masked", "soft")
    classes = ["asked" if i in selected else "" for i in range(len(original))]
    drawing.tokens(left, 74, width, read, classes)
    drawing.label(left, 110, 7 * width - 3, 26, "generator: sees all of the example", "first")
    for place, sample in selected.items():
        middle = left + place * width + (width - 3) / 2
        drawing.path(f"M{middle},98 V109", "arrow")
        drawing.path(f"M{middle},136 V155", "arrow")
        drawing.label(left + place * width, 156, width - 3, 24, sample, "asked")
    drawing.text(EDGE, 172, "samples", "soft")
    drawing.text(left, 196, "No gradient passes through the samples.", "soft small")
    drawing.text(EDGE, 222, "filled", "soft")
    drawing.tokens(left, 206, width, replaced, classes)
    reader = "discriminator (the encoder): sees all of the example"
    drawing.label(left, 242, 7 * width - 3, 26, reader, "second")
    drawing.text(EDGE, 304, "replaced?", "soft")
    for place, token in enumerate(replaced):
        middle = left + place * width + (width - 3) / 2
        is_replaced = token != original[place]
        drawing.path(f"M{middle},230 V241", "arrow")
        drawing.path(f"M{middle},268 V287", "arrow")
        answer = "yes" if is_replaced else "no"
        drawing.label(left + place * width, 288, width - 3, 24, answer, "asked")
    drawing.lines(
        EDGE,
        336,
        "“die” was drawn right, so it counts as original.",
        f"Loss: {options.generator_weight:g} × cross-entropy of the masked tokens",
        f"+ {options.weight:g} × binary cross-entropy of all tokens but padding.",
    )
    return drawing.render()


def word_alignment() -> str:
    """Draws DWA: labels by optimal transport, and the pointer network that predicts them."""
    options = WordAlignment()
    source, target = "today it rains".split(), "heute regnet es".split()
    similarity = jnp.array([[8.0, 2.0, 1.0], [2.0, 2.5, 6.0], [1.0, 7.0, 2.5]])
    ids = jnp.ones(3, jnp.int32)

    @jax.jit
    def label(similarity: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        plan = sinkhorn(similarity, ids, ids, options.sinkhorn_iterations).plan
        links = extraction.itermax(plan, ids, ids, options.filtering_alpha)
        return plan, links, extraction.labels(links)

    plan, links, labels = map(np.array, label(similarity))
    drawing = Drawing(
        "DWA: the model labels word alignments of the unmasked pair by optimal transport; a "
        "pointer network finds the labels from the masked pair"
    )
    drawing.text(EDGE, 22, "Stage 1: label the unmasked pair, without gradient", "strong")
    left, top, width, height = 84, 66, 62, 30
    for j, word in enumerate(target):
        drawing.text(left + width * (j + 0.5), top - 8, word, "middle soft")
    for i, word in enumerate(source):
        drawing.text(left - 8, top + height * i + 20, word, "end soft")
        for j in range(3):
            box = left + width * j, top + height * i, width - 4, height - 4
            drawing.label(*box, f"{plan[i, j]:.2f}", "right" if links[i, j] else "")
    steps = "vectors at layer ⅔", "→ similarities", "→ Sinkhorn", "→ itermax: links"
    drawing.lines(286, top + 18, *steps)
    drawing.text(left, top + 106, "framed: links, the labels of stage 2", "soft small")
    drawing.text(EDGE, 208, "Stage 2: find the labels in the masked pair", "strong")
    masked = ["<s>", "today", "it", MASK, "</s>"]
    upper, lower, step = 226, 322, 66
    drawing.tokens(60, upper, step, masked, ["", "first", "first", "asked", ""])
    drawing.tokens(60 + step, lower, step, [*target, "</s>"], ["second"] * 3 + [""])
    query = 60 + 3 * step + (step - 3) / 2
    for key in range(3):
        middle = 60 + step * (key + 1) + (step - 3) / 2
        drawn = "ask" if key == labels[2] else "line dashed"
        drawing.path(f"M{query},{upper + 24} L{middle},{lower - 2}", drawn)
    drawing.text(EDGE, upper + 50, "TLM predicts", "soft")
    drawing.text(EDGE, upper + 68, "“rains” here too", "ask")
    drawing.lines(
        EDGE,
        372,
        "The pointer network compares the last vector of the masked",
        "token with those of the other sentence's words. Loss: TLM's",
        f"cross-entropy + {options.alignment_weight:g} × that of the label among these words.",
        "Masked words of the other sentence do the same.",
    )
    return drawing.render()


def contrast() -> str:
    """Draws XLCO: a query, the key that the momentum encoder computes, and the queue."""
    options = CrossLingualContrast()
    drawing = Drawing(
        "XLCO: the vector of a sentence has to find that of its translation among a queue of "
        "earlier sentences"
    )
    drawing.text(EDGE, 22, "XLCO: a pair, one side the query, one the key", "strong")
    half = (INNER - 16) / 2
    columns = (EDGE, "first"), (EDGE + half + 16, "second")
    words = (
        ("the cat <mask>", "encoder", "projection", "query q"),
        ("die <mask> schläft", "momentum encoder", "its projection", "key k⁺"),
    )
    for (left, colour), (text, model, head, vector) in zip(columns, words, strict=True):
        middle = left + half / 2
        drawing.label(left, 38, half, 28, text, "")
        drawing.path(f"M{middle},66 V79", "arrow")
        drawing.label(left, 80, half, 28, model, colour)
        drawing.text(middle + 8, 124, "vector of <s>", "soft small")
        drawing.path(f"M{middle},108 V131", "arrow")
        drawing.label(left, 132, half, 28, head, colour)
        drawing.path(f"M{middle},160 V175", "arrow")
        drawing.label(left, 176, half, 28, vector, "asked")
    drawing.text(EDGE, 224, "trained by the gradient", "soft small")
    average = f"moving average, {options.momentum:g}"
    drawing.text(EDGE + half + 16, 224, average, "soft small")
    drawing.text(EDGE, 258, f"queue of {options.queue:,} keys", "soft")
    for place in range(6):
        drawing.label(EDGE + 150 + place * 41, 241, 38, 26, "k⁻", "")
    enters = EDGE + half + 16 + half - 14
    drawing.path(f"M{enters},204 V240", "arrow")
    drawing.text(EDGE, 290, "k⁺ enters the queue after the step; the oldest keys leave.", "soft")
    loss = (
        "Loss: −log softmax of q · k⁺ among q · k⁺ and all q · k⁻,",
        f"divided by the temperature {options.temperature:g}.",
    )
    mixup = (
        "Mixup (default): each side is first joined with that of another",
        "pair, in an order drawn for each side.",
    )
    drawing.lines(EDGE, drawing.lines(EDGE, 318, *loss, classes="ask") + 8, *mixup)
    return drawing.render()


def retrieval() -> str:
    """Draws retrieval: the cosines of a batch, the translations and the hardest negatives."""
    first = ["good morning", "thanks", "a cat sleeps", "thanks"]
    second = ["guten Morgen", "danke", "eine Katze", "merci"]
    cosines = np.array(
        [[0.81, 0.34, 0.12, 0.29], [0.41, 0.77, 0.08, 0.70], [0.15, 0.10, 0.88, 0.22],
         [0.37, 0.69, 0.17, 0.74]]
    )  # fmt: skip
    negative = np.array([[a != c for c in first] for a in first])
    negative &= np.array([[b != d for d in second] for b in second])
    allowed = np.where(negative, cosines, -np.inf)
    drawing = Drawing(
        "Retrieval: each translation against the most similar other sentence of the batch, in both "
        "directions"
    )
    drawing.text(EDGE, 22, "Retrieval: cosines of all pairs of a batch", "strong")
    apart = "Sentences are read apart; a vector is the mean of its tokens'."
    drawing.text(EDGE, 40, apart, "soft small")
    left, top, width, height = 106, 152, 76, 34
    for j, sentence in enumerate(second):
        drawing.upright(left + width * (j + 0.5), top - 8, sentence, "soft")
    for i, sentence in enumerate(first):
        drawing.text(left - 8, top + height * i + 21, sentence, "end soft")
        for j in range(4):
            x, y = left + width * j, top + height * i
            hardest = allowed[i, j] == allowed[i].max() or allowed[i, j] == allowed[:, j].max()
            colour = "right" if i == j else "asked" if hardest else ""
            colour = colour if i == j or negative[i, j] else "faded"
            drawing.label(x, y, width - 4, height - 4, f"{cosines[i, j]:.2f}", colour)
            if negative[i, j]:
                marks = "←" * bool(allowed[i, j] == allowed[i].max())
                marks += "↑" * bool(allowed[i, j] == allowed[:, j].max())
                drawing.text(x + width - 6, y + 12, marks, "end ask small")
    y = top + 4 * height + 14
    for colour, text in (
        ("right", "a translation: should be similar"),
        ("asked", "the hardest negative of its row (←), of its column (↑): should not"),
        ("faded", "no negative: the pairs share the sentence “thanks”"),
    ):
        drawing.box(EDGE, y, 16, 14, colour, 3)
        drawing.text(EDGE + 24, y + 11.5, text, "soft small")
        y += 22
    drawing.lines(
        EDGE,
        y + 20,
        f"Loss: binary cross-entropy of cosine / {Retrieval().temperature:g}, for each pair twice",
        "the translation and both hardest negatives; loss=softmax:",
        "a softmax over all other sentences of both sides.",
    )
    return drawing.render()


def word_hmm() -> str:
    """Draws the word HMM: a sentence is generated from its translation."""
    options = WordHMM()
    source, target = ["null", "regnet", "es"], ["does", "it", "rain"]
    emitted = [0, 2, 1]
    drawing = Drawing(
        "Word HMM: each token of a sentence is generated by a token of its translation or by null, "
        "at a place that moves by jumps"
    )
    drawing.text(EDGE, 22, "Word HMM: one sentence generates the other", "strong")
    left, step, upper, lower = 96, 104, 84, 190
    drawing.text(EDGE, upper + 17, "source", "soft")
    drawing.text(EDGE, lower + 17, "generated", "soft")
    places = [left + step * place for place in range(3)]
    for x, word in zip(places, source, strict=True):
        drawing.label(x, upper, 84, 26, word, "faded" if word == "null" else "first")
    for x, word, place in zip(places, target, emitted, strict=True):
        drawing.label(x, lower, 84, 26, word, "asked")
        drawing.path(f"M{places[place] + 42},{upper + 26} L{x + 42},{lower - 2}", "ask")
    back, here, above, over = places[1] + 42, places[2] + 42, upper - 2, upper - 34
    drawing.path(f"M{here},{above} C{here},{over} {back},{over} {back},{above}", "arrow")
    drawing.text((back + here) / 2, upper - 30, "jump −1", "middle soft small")
    y = drawing.lines(
        EDGE,
        246,
        "Emission: the product of the vectors of the source token",
        f"(layer {options.layer}, the embeddings) and of the generated piece, against",
        "pieces of other sentences. Jump: a number for each distance.",
    )
    likelihood = "Loss: −log likelihood of each sentence, given the other."
    y = drawing.lines(EDGE, y, likelihood, classes="ask")
    drawing.lines(
        EDGE,
        y,
        f"{options.agreement:.0%} of what a link learns is the product of both directions'",
        "probabilities; the rest is each direction's own.",
    )
    return drawing.render()
