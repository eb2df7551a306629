"""Reference implementation of the encoder's forward pass.

It has all model options: those of XLM-R, ModernBERT, mmBERT, EuroBERT and gte.
"""

import math

import numpy as np

from references.layout import agree, layout, of_examples

erf = np.vectorize(math.erf, otypes=[float])


def float64(params):
    """The same nested dict, of NumPy arrays."""
    if isinstance(params, dict):
        return {name: float64(part) for name, part in params.items()}
    return np.asarray(params, np.float64)


def dense(part, x):
    """A linear layer, with or without a bias."""
    return x @ part["kernel"] + part.get("bias", 0)


def norm(part, model, x):
    """LayerNorm or RMSNorm, which does not subtract the mean, with or without a bias."""
    if model.norm_type != "rms":
        x = x - x.mean(-1, keepdims=True)
    root = np.sqrt((x * x).mean(-1, keepdims=True) + model.layer_norm_epsilon)
    return x / root * part["scale"] + part.get("bias", 0)


def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def softmax(x):
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


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


def frequencies(model, base):
    """Rotary frequencies: the radians per position by which each pair of a head's components turns,
    [size / 2]."""
    size = model.hidden // model.heads
    return base ** -(np.arange(0, size, 2) / size) / model.rotary_factor


def rotated(x, angles):
    """RoPE (Su et al., 2021): turns components j and j + size / 2 by the jth angle.

    Args:
      x: [rows, heads, length, size].
      angles: [rows, length, size / 2].
    """
    first, second = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def is_full(model, layer):
    """Whether a layer, counted from 0, attends at any distance."""
    if not model.local_attention:
        return True
    if model.full_layers:
        return str(layer) in model.full_layers
    return layer % model.full_attention_every == 0


def window(model, length):
    """Which keys of its row each query of a local layer may see, bool [query, key]."""
    place = np.arange(length)
    return abs(place[:, None] - place) <= model.local_attention // 2


def no_dropout(x, layer, site, rate):
    """No dropout."""
    return x


def attention(part, model, x, sees, bias, dropped=no_dropout, number=0, angles=None):
    """Self-attention; a query that sees no key gets zeros.

    Args:
      sees: bool [rows, query, key].
      bias: float [heads, query, key] to add to the scores; None: nothing.
      dropped: as in `encode`.
      number: the number of the layer, from 1.
      angles: the angles by which `rotated` turns queries and keys; None: neither is rotated. The
        gates of a position bias read queries that are not rotated.
    """
    size = model.hidden // model.heads

    def heads(name):
        projected = dense(part[name], x)
        return projected.reshape(*x.shape[:2], -1, size).swapaxes(1, 2)

    query, key, value = heads("query"), heads("key"), heads("value")
    shared = model.heads // (model.key_value_heads or model.heads)
    key, value = key.repeat(shared, axis=1), value.repeat(shared, axis=1)
    turn = (lambda x: x) if angles is None else (lambda x: rotated(x, angles))
    scores = turn(query) @ turn(key).swapaxes(2, 3) / math.sqrt(size)
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


def feed_forward(part, x, kind="gelu"):
    """Two dense layers. Kinds `geglu` and `swiglu` are gated: the first half of the inner product
    is activated, and multiplied by the second half."""
    inner = dense(part["inner"], x)
    if kind == "gelu":
        return dense(part["outer"], gelu(inner))
    first, second = np.split(inner, 2, axis=-1)
    return dense(part["outer"], (silu if kind == "swiglu" else gelu)(first) * second)


def encode(
    params,
    model,
    tokens,
    languages=None,
    *,
    sees=None,
    marked=None,
    shape=None,
    places=None,
    dropped=no_dropout,
):
    """The output of the embeddings and of each layer, [layers + 1, rows, length, hidden]. The final
    norm is part of the last layer; with `middle_norm`, of every layer.

    Args:
      languages: [rows, 2]; embedded at every token if `model.language_embeddings` is "all".
      sees: bool [rows, query, key]; None: a token sees its example.
      marked: the language to embed at each token, -1 for none; replaces `languages`.
      shape: tokens with XLM-R's special tokens, from which examples, sides and positions follow;
        None: `tokens`.
      places: (example, side, position) of each token, [rows, length] each, where examples count
        from 1, and 0 is padding; None: follow from `shape`.
      dropped: a function (x, layer, site in the layer, rate) -> x after dropout, where layers count
        from 1, and 0 is the embeddings.
    """
    tokens = np.asarray(tokens)
    length = tokens.shape[1]
    if places is None:
        places = layout(tokens if shape is None else shape)
    example, side, position = (np.array(numbers) for numbers in places)
    if "positions" in model.pair_marks:
        for row, at in zip(*np.nonzero(side), strict=True):
            begins = side[row, at - 1] == 0
            position[row, at] = 0 if begins else position[row, at - 1] + 1
    if "separator" in model.pair_marks:
        tokens = tokens.copy()
        for row, at in zip(*np.nonzero(side), strict=True):
            if side[row, at - 1] == 0:
                tokens[row, at - 1] = 4  # <|parallel_sep|> replaces </s>
    if marked is None and model.language_embeddings == "all":
        marked = of_examples(example, side, languages)
    x = embedded(params["embeddings"], model, tokens, position, side, marked)
    x = dropped(x, 0, 0, rate(model, "embeddings"))
    if sees is None:
        sees = agree(example, example)
    bias = None
    if model.position_bias != "none":
        bias = position_bias(params["position_bias"]["table"], model, length)
    is_pre_norm = model.norm != "post"
    outputs = [x]
    for index in range(len(params["layers"]["attention"]["query"]["kernel"])):
        number, part = index + 1, layer(params["layers"], model, index)
        full = is_full(model, index)
        visible = sees if full else sees & window(model, length)
        angles = None
        if model.rotary_base:
            local_base = 0 if full else model.rotary_local_base
            base = local_base or model.rotary_base
            angles = position[..., None] * frequencies(model, base)
        has_norm = is_pre_norm and "attention_norm" in part
        inner = norm(part["attention_norm"], model, x) if has_norm else x
        update = attention(part["attention"], model, inner, visible, bias, dropped, number, angles)
        x = x + dropped(update, number, 2, rate(model, "attention"))
        x = x if is_pre_norm else norm(part["attention_norm"], model, x)
        inner = norm(part["feed_forward_norm"], model, x) if is_pre_norm else x
        update = feed_forward(part["feed_forward"], inner, model.feed_forward)
        x = x + dropped(update, number, 3, rate(model, "feed_forward"))
        x = x if is_pre_norm else norm(part["feed_forward_norm"], model, x)
        outputs.append(x)
    if is_pre_norm:
        first = 1 if model.middle_norm else len(outputs) - 1
        outputs[first:] = [norm(params["final_norm"], model, x) for x in outputs[first:]]
    return np.stack(outputs)


def rate(model, part):
    """The dropout rate after a part of the model."""
    return model.dropout if part in model.dropout_parts else 0.0


def embedded(table, model, tokens, position, side, marked):
    """The output of the embeddings before dropout; `marked` as in `encode`."""
    x = table["word"][tokens]
    if model.absolute_positions:
        x = x + table["position"][position + 2]
    if model.token_types:
        x = x + table["token_type"][side if "types" in model.pair_marks else 0 * side]
    if marked is not None:
        x = x + np.where((marked >= 0)[..., None], table["language"][np.maximum(marked, 0)], 0)
    if model.norm != "pre":
        x = norm(table["norm"], model, x)
    return x


def layer(layers, model, index):
    """The parameters of a layer, counted from 0.

    If the first norm follows the embeddings, the first layer has no norm before attention. Row 0 of
    `attention_norm` then belongs to the second layer.
    """
    lacking = int(model.norm == "embeddings")
    shifts = {name: lacking if name == "attention_norm" else 0 for name in layers}
    return {
        name: _row(parts, index - shifts[name])
        for name, parts in layers.items()
        if index >= shifts[name]
    }


def _row(parts, index):
    if isinstance(parts, dict):
        return {name: _row(part, index) for name, part in parts.items()}
    return parts[index]
