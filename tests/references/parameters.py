"""Names and shapes of the encoder's parameters."""

from references.encoder import option


def shapes(model, vocabulary, languages=0):
    """The nested dict of an encoder's parameters, with shapes as leaves.

    Options beside those of `encoder.encode`: `norm_bias`, `attention_bias`,
    `attention_output_bias`, `feed_forward_bias`, `feed_forward_output_bias`, true if the model's
    object lacks them.
    """
    hidden, layers = model.hidden, model.layers
    size = hidden // model.heads
    shared = size * (option(model, "key_value_heads") or model.heads)
    before = model.norm == "pre"

    def has(name):
        return getattr(model, name, True)

    def dense(inputs, outputs, bias):
        part = {"kernel": (layers, inputs, outputs)}
        return part | ({"bias": (layers, outputs)} if has(bias) else {})

    def norm(*leading):
        part = {"scale": (*leading, hidden)}
        return part | ({"bias": (*leading, hidden)} if has("norm_bias") else {})

    table = {"word": (vocabulary, hidden)}
    if option(model, "position") == "learned" and option(model, "absolute_positions"):
        table["position"] = (model.positions, hidden)
    if model.token_types:
        table["token_type"] = (model.token_types, hidden)
    if model.language_embeddings != "none":
        table["language"] = (languages, hidden)
    if getattr(model, "embedding_norm", not before):
        table["norm"] = norm()
    feed_forward = {
        "inner": dense(hidden, model.intermediate, "feed_forward_bias"),
        "outer": dense(model.intermediate, hidden, "feed_forward_output_bias"),
    }
    if option(model, "feed_forward") != "gelu":
        feed_forward["multiplier"] = dense(hidden, model.intermediate, "feed_forward_bias")
    attention = {
        "query": dense(hidden, hidden, "attention_bias"),
        "key": dense(hidden, shared, "attention_bias"),
        "value": dense(hidden, shared, "attention_bias"),
        "output": dense(hidden, hidden, "attention_output_bias"),
    }
    if model.position_bias == "gated":
        attention["gates"] = {"kernel": (layers, size, 2), "scale": (layers, model.heads)}
    missing = before and not option(model, "first_norm")
    params = {
        "embeddings": table,
        "layers": {
            "attention": attention,
            "attention_norm": norm(layers - 1 if missing else layers),
            "feed_forward": feed_forward,
            "feed_forward_norm": norm(layers),
        },
    }
    if model.position_bias != "none":
        params["position_bias"] = {"table": (model.position_buckets, model.heads)}
    if getattr(model, "final_norm", before):
        params["final_norm"] = norm()
    return params
