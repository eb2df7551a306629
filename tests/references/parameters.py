"""Reference names and shapes of the encoder's parameters."""


def shapes(model, vocabulary, languages=0):
    """The nested dict of an encoder's parameters, with shapes as leaves."""
    hidden, layers = model.hidden, model.layers
    size = hidden // model.heads
    key_value_size = size * (model.key_value_heads or model.heads)
    halves = 1 if model.feed_forward == "gelu" else 2

    def dense(inputs, outputs, bias):
        part = {"kernel": (layers, inputs, outputs)}
        return part | ({"bias": (layers, outputs)} if bias in model.biases else {})

    def norm(*leading):
        part = {"scale": (*leading, hidden)}
        return part | ({"bias": (*leading, hidden)} if model.norm_type == "layer" else {})

    table = {"word": (vocabulary, hidden)}
    if model.absolute_positions:
        table["position"] = (model.positions, hidden)
    if model.token_types:
        table["token_type"] = (model.token_types, hidden)
    if model.language_embeddings != "none":
        table["language"] = (languages, hidden)
    if model.norm != "pre":
        table["norm"] = norm()
    feed_forward = {
        "inner": dense(hidden, halves * model.intermediate, "inner"),
        "outer": dense(model.intermediate, hidden, "outer"),
    }
    attention = {
        "query": dense(hidden, hidden, "attention"),
        "key": dense(hidden, key_value_size, "attention"),
        "value": dense(hidden, key_value_size, "attention"),
        "output": dense(hidden, hidden, "output"),
    }
    if model.position_bias == "gated":
        attention["gates"] = {"kernel": (layers, size, 2), "scale": (layers, model.heads)}
    lacks_norm = model.norm == "embeddings"
    params = {
        "embeddings": table,
        "layers": {
            "attention": attention,
            "attention_norm": norm(layers - 1 if lacks_norm else layers),
            "feed_forward": feed_forward,
            "feed_forward_norm": norm(layers),
        },
    }
    if lacks_norm and layers == 1:
        del params["layers"]["attention_norm"]
    if model.position_bias != "none":
        params["position_bias"] = {"table": (model.position_buckets, model.heads)}
    if model.norm != "post":
        params["final_norm"] = norm()
    return params
