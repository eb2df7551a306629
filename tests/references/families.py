"""Options of small ModernBERT, mmBERT, EuroBERT and gte models, and parameters drawn for them."""

import numpy as np

from references.parameters import shapes

VOCABULARY = 50

COMMON = {
    "key_value_heads": 0,
    "position": "rotary",
    "rotary_scaling": "none",
    "rotary_factor": 1.0,
    "pair_positions": "running",
    "local_attention": 0,
    "full_attention_every": 1,
    "full_layers": (),
    "first_norm": True,
    "token_types": 0,
    "pair_token_types": False,
    "position_bias": "none",
    "language_embeddings": "none",
    "dropout": 0.0,
    "attention_dropout": 0.0,
}

MODERNBERT = COMMON | {
    "rotary_base": 160000.0,
    "rotary_local_base": 10000.0,
    "local_attention": 128,
    "full_attention_every": 3,
    "norm": "pre",
    "norm_type": "layer",
    "norm_bias": False,
    "first_norm": False,
    "embedding_norm": True,
    "final_norm": True,
    "layer_norm_epsilon": 1e-5,
    "attention_bias": False,
    "attention_output_bias": False,
    "feed_forward": "geglu",
    "feed_forward_bias": False,
    "feed_forward_output_bias": False,
    "head_dense": True,
    "head_bias": False,
}

EUROBERT = COMMON | {
    "rotary_base": 250000.0,
    "norm": "pre",
    "norm_type": "rms",
    "norm_bias": False,
    "embedding_norm": False,
    "final_norm": True,
    "layer_norm_epsilon": 1e-5,
    "attention_bias": False,
    "attention_output_bias": False,
    "feed_forward": "swiglu",
    "feed_forward_bias": False,
    "feed_forward_output_bias": False,
    "head_dense": False,
}

GTE = COMMON | {
    "rotary_base": 160000.0,
    "norm": "post",
    "norm_type": "layer",
    "norm_bias": True,
    "embedding_norm": True,
    "final_norm": False,
    "layer_norm_epsilon": 1e-12,
    "attention_bias": True,
    "attention_output_bias": True,
    "feed_forward": "geglu",
    "feed_forward_bias": False,
    "feed_forward_output_bias": True,
    "token_types": 1,
    "head_dense": True,
    "head_bias": True,
}

SMALL = {"hidden": 64, "heads": 4, "layers": 4, "intermediate": 96}
MEDIUM = {"hidden": 96, "heads": 6, "layers": 6, "intermediate": 80}
LARGE = {"hidden": 128, "heads": 4, "layers": 7, "intermediate": 112}

BIASES = dict.fromkeys(("attention_bias", "attention_output_bias"), True)
ALL_BIASES = BIASES | dict.fromkeys(
    ("feed_forward_bias", "feed_forward_output_bias", "norm_bias", "head_bias"), True
)

MODELS = {
    "ModernBert-small": MODERNBERT | SMALL,
    "ModernBert-medium": MODERNBERT | MEDIUM | {"rotary_local_base": 160000.0},  # mmBERT's
    "ModernBert-large": MODERNBERT | LARGE | ALL_BIASES | {"full_layers": (1, 5)},
    "EuroBert-small": EUROBERT | SMALL | {"key_value_heads": 2},
    "EuroBert-medium": EUROBERT
    | MEDIUM
    | BIASES
    | {"key_value_heads": 2, "feed_forward_bias": True, "feed_forward_output_bias": True},
    "EuroBert-large": EUROBERT | LARGE | {"key_value_heads": 1},
    "Gte-small": GTE | SMALL,
    "Gte-medium": GTE | MEDIUM | {"token_types": 0},
    # gte-multilingual-base's numbers
    "Gte-large": GTE
    | LARGE
    | {"rotary_base": 20000.0, "rotary_scaling": "ntk", "rotary_factor": 8.0},
}
"""Options by a name that begins with the name of the class in transformers. Biases that released
models lack are on in some, where an option of transformers' config allows them."""


class Options:
    """The options of a model as attributes."""

    def __init__(self, **values):
        self.__dict__.update(values)


def options(name, **changes):
    """The options of a model of `MODELS`, with changes."""
    return Options(**MODELS[name] | changes)


def drawn(model, seed=0, width=2.4):
    """Parameters of an encoder and its masked-LM head, norms and biases too.

    The standard deviation is `width` by the root of `hidden`, 0.3 for 64: so wide that every part
    of the model moves its output.
    """
    rng, hidden = np.random.default_rng(seed), model.hidden

    def draw(tree, name=""):
        if isinstance(tree, dict):
            return {part: draw(shape, part) for part, shape in tree.items()}
        return (name == "scale") + width * hidden**-0.5 * rng.normal(size=tree)

    scale = {"scale": (hidden,)}
    norm = scale | ({"bias": (hidden,)} if model.norm_bias else {})
    head = {"bias": (VOCABULARY,)}
    if model.head_dense:
        dense = {"kernel": (hidden, hidden)} | ({"bias": (hidden,)} if model.head_bias else {})
        head |= {"dense": dense, "norm": norm}
    else:
        head = {"decoder": {"kernel": (VOCABULARY, hidden)}}
    return draw(shapes(model, VOCABULARY)), draw(head)
