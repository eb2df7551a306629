"""Reference counts of the operations of a step in matrix products.

A multiply-add counts as 2. Trained products count three times: once forward, twice backward.
"""

import math

from references.encoder import is_full


def product(rows, inner, columns):
    return 2 * rows * inner * columns


def layers(model, count, rows, length):
    """Operations of `count` layers. In a local layer a token sees the window around it, including
    itself."""
    tokens, h = rows * length, model.hidden
    key_size = h // model.heads * (model.key_value_heads or model.heads)
    linear = 2 * product(tokens, h, h) + 2 * product(tokens, h, key_size)
    kernels = 2 if model.feed_forward == "gelu" else 3
    linear += kernels * product(tokens, h, model.intermediate)
    gates = product(tokens, h, 2) if model.position_bias == "gated" else 0
    window = min(length, model.local_attention // 2 * 2 + 1)
    seen = sum(length if is_full(model, layer) else window for layer in range(count))
    return count * (linear + gates) + 2 * rows * product(length, h, seen)


def predictions(model, vocabulary, count):
    dense = product(count, model.hidden, model.hidden) if model.prediction == "dense" else 0
    return dense + product(count, model.hidden, vocabulary)


def slots(rate, length):
    return math.ceil(rate * (length - 2) - 1e-9)


def mlm(model, vocabulary, rows, length, rate):
    head = predictions(model, vocabulary, rows * slots(rate, length))
    return 3 * (layers(model, model.layers, rows, length) + head)


def btmlm(model, vocabulary, rows, length, rate):
    generated = predictions(model, vocabulary, rows * math.ceil(length / 4))
    first = layers(model, model.layers, rows, length) + generated
    return first + mlm(model, vocabulary, rows, length, rate)


def rtd(model, vocabulary, rows, length, rate, generator_layers):
    head = predictions(model, vocabulary, rows * slots(rate, length))
    # The last term computes the logits of the samples.
    generator = 3 * (layers(model, generator_layers, rows, length) + head) + head
    detection = product(rows * length, model.hidden, model.hidden + 1)
    return generator + 3 * (layers(model, model.layers, rows, length) + detection)


def dwa(model, vocabulary, rows, length, rate, label_layer, queries):
    labels = layers(model, label_layer, rows, length)
    labels += rows * product(length, model.hidden, length)
    pointer = product(rows * (length + queries), model.hidden, model.hidden)
    pointer += rows * product(queries, model.hidden, length)
    return labels + 3 * pointer + mlm(model, vocabulary, rows, length, rate)


def xlco(model, rows, length, pairs, layer, queue):
    """The queries are trained, and the keys are not. The queue has no gradient."""
    projection = product(rows * pairs, model.hidden, model.hidden)
    encoders = (3 + 1) * (layers(model, layer, rows, length) + projection)
    return encoders + 2 * product(rows * pairs, model.hidden, queue)


def retrieval(model, rows, length, pairs, layer, loss):
    """Both sides are encoded without and with a gradient. With `hardest`, each side is compared
    with the other; with `softmax`, both sides with both."""
    texts = rows * pairs
    similarity = product(texts, model.hidden, texts) * (4 if loss == "softmax" else 2)
    return 2 * (3 + 1) * layers(model, layer, rows, length // 2) + 3 * similarity


def contrast(model, rows, length, pairs, layer, negatives, query_length, dense):
    """Queries are compared with positives and negatives, which have rows of their own."""
    texts = rows * pairs * (1 + negatives)
    encoders = layers(model, layer, rows, query_length)
    encoders += layers(model, layer, rows * (1 + negatives), length)
    encoders += product(rows * pairs * (2 + negatives), model.hidden, dense)
    return (3 + 1) * encoders + 3 * product(rows * pairs, dense, texts)


def word_hmm(model, rows, length, layer, noise):
    """Each side, and the null word, generate the other side. The moves between their positions are
    multiplied in the forward pass, in the backward pass and for the jumps, without a gradient."""
    side, h = length // 2, model.hidden
    kernels = 2 * product(rows * side, h, h) + product(noise, h, h)
    scores = rows * product(side + 1, h, side + noise)
    trained = 3 * (layers(model, layer, rows, side) + kernels + scores)
    moves = 3 * rows * product(side + 1, side, side)
    return 2 * (trained + moves)


def word_agreement(model, rows, length, layer):
    """Each side is encoded once. The products of the vectors of both sides have a gradient."""
    side = length // 2
    similarity = rows * product(side, model.hidden, side)
    return 3 * (2 * layers(model, layer, rows, side) + similarity)


def distillation(model, rows, length):
    return (3 + 1) * layers(model, model.layers, rows, length)


def sentence_distillation(model, rows, length, sides, examples, layer, dense):
    """The teacher's vectors are fields of the rows."""
    head = product(rows * sides * examples, model.hidden, dense)
    return 3 * (layers(model, layer, rows * sides, length) + head)


def supervised(model, rows, length, labels):
    head = product(rows * length, model.hidden, labels)
    return 3 * (layers(model, model.layers, rows, length) + head)
