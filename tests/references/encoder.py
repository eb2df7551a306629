"""The encoder's forward pass: XLM-R's, with every option of the model."""

import math

import numpy as np

from references.layout import layout, of_sides

erf = np.vectorize(math.erf, otypes=[float])


def float64(params):
    """The same nested dict, of NumPy arrays."""
    if isinstance(params, dict):
        return {name: float64(part) for name, part in params.items()}
    return np.asarray(params, np.float64)


def dense(part, x):
    return x @ part["kernel"] + part["bias"]


def norm(part, model, x):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + model.layer_norm_epsilon) * part["scale"] + part["bias"]


def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def softmax(x):
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def bucket(difference, count, distance):
    """T5's bucket of a key's place minus its query's (Raffel et al., 2020)."""
    half, exact = count // 2, count // 4
    start, far = half * (difference > 0), abs(difference)
    if far < exact:
        return start + far
    growth = math.log(far / exact) / math.log(distance / exact) * (half - exact)
    return start + min(exact + int(growth), half - 1)


def position_bias(table, model, length):
    """[heads, query, key]."""
    places = [
        [bucket(j - i, model.position_buckets, model.position_distance) for j in range(length)]
        for i in range(length)
    ]
    return table[np.array(places)].transpose(2, 0, 1)


def kept(x, layer, site, rate):
    """No dropout."""
    return x


def attention(part, model, x, sees, bias, dropped=kept, number=0):
    """`sees` bool [rows, query, key]; a query that sees no key gets zeros."""
    size = model.hidden // model.heads

    def heads(name):
        return dense(part[name], x).reshape(*x.shape[:2], model.heads, size).swapaxes(1, 2)

    query, key, value = heads("query"), heads("key"), heads("value")
    scores = query @ key.swapaxes(2, 3) / math.sqrt(size)
    if bias is not None:
        gated = bias[None]
        if model.position_bias == "gated":  # XLM-E, section 3.3
            update, reset = np.moveaxis(sigmoid(query @ part["gates"]["kernel"]), -1, 0)
            w = part["gates"]["scale"][:, None, None]
            gated = (
                bias
                + update[..., None] * bias
                + (1 - update)[..., None] * w * (reset[..., None] * bias)
            )
        scores = scores + gated
    sees = np.broadcast_to(sees[:, None], scores.shape)
    weights = np.where(sees, softmax(np.where(sees, scores, -1e30)), 0)
    weights = dropped(weights, number, 1, model.attention_dropout)
    mixed = (weights @ value).swapaxes(1, 2).reshape(x.shape)
    return dense(part["output"], mixed)


def feed_forward(part, x):
    return dense(part["outer"], gelu(dense(part["inner"], x)))


def encode(params, model, tokens, languages, *, sees=None, marked=None, shape=None, dropped=kept):
    """The output of the embeddings and of each layer, [layers + 1, rows, length, hidden].

    Args:
      languages: [rows, 2], embedded everywhere if the model embeds all.
      sees: bool [rows, query, key]; None: a token sees its example.
      marked: the language to embed at each token, -1 for none, in the place of that.
      shape: tokens whose examples, sides and positions are those of the rows; None: `tokens`.
      dropped: (x, layer, from 1, 0 for the embeddings; site in the layer; rate) -> x after dropout.
    """
    tokens = np.asarray(tokens)
    shape = tokens if shape is None else shape
    example, side, position = layout(shape)
    if model.pair_positions == "restart":
        for row, at in zip(*np.nonzero(side), strict=True):
            begins = side[row, at - 1] == 0
            position[row, at] = 0 if begins else position[row, at - 1] + 1
    table = params["embeddings"]
    x = table["word"][tokens]
    if model.absolute_positions:
        x = x + table["position"][position + 2]
    if model.token_types:
        x = x + table["token_type"][side if model.pair_token_types else 0 * side]
    if marked is None and model.language_embeddings == "all":
        marked = of_sides(shape, languages)
    if marked is not None:
        x = x + np.where((marked >= 0)[..., None], table["language"][np.maximum(marked, 0)], 0)
    if model.norm == "post":
        x = norm(table["norm"], model, x)
    x = dropped(x, 0, 0, model.dropout)
    if sees is None:
        sees = example[:, :, None] == example[:, None, :]
    bias = None
    if model.position_bias != "none":
        bias = position_bias(params["position_bias"]["table"], model, tokens.shape[1])
    count = len(params["layers"]["attention_norm"]["scale"])
    every = [x]
    for number in range(1, count + 1):
        part = _layer(params["layers"], number - 1)
        before = model.norm == "pre"
        inner = norm(part["attention_norm"], model, x) if before else x
        update = attention(part["attention"], model, inner, sees, bias, dropped, number)
        x = x + dropped(update, number, 2, model.dropout)
        x = x if before else norm(part["attention_norm"], model, x)
        inner = norm(part["feed_forward_norm"], model, x) if before else x
        x = x + dropped(feed_forward(part["feed_forward"], inner), number, 3, model.dropout)
        x = x if before else norm(part["feed_forward_norm"], model, x)
        every.append(x)
    if model.norm == "pre":
        every[-1] = norm(params["final_norm"], model, every[-1])
    return np.stack(every)


def _layer(parts, number):
    if isinstance(parts, dict):
        return {name: _layer(part, number) for name, part in parts.items()}
    return parts[number]
