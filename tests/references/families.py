"""Options of small ModernBERT, mmBERT, EuroBERT and gte models, and random parameters for them."""

import numpy as np

from references.parameters import shapes

VOCABULARY = 50

COMMON = {
    "key_value_heads": 0,
    "absolute_positions": False,
    "rotary_local_base": 0.0,
    "rotary_factor": 1.0,
    "pair_marks": (),
    "local_attention": 0,
    "full_layers": (),
    "token_types": 0,
    "position_bias": "none",
    "language_embeddings": "none",
    "dropout": 0.0,
    "dropout_parts": (),
    "attention_dropout": 0.0,
    "middle_norm": False,
}

MODERNBERT = COMMON | {
    "rotary_base": 160000.0,
    "rotary_local_base": 10000.0,
    "local_attention": 128,
    "full_attention_every": 3,
    "norm": "embeddings",
    "norm_type": "unbiased",
    "layer_norm_epsilon": 1e-5,
    "feed_forward": "geglu",
    "biases": ("vocabulary",),
    "prediction": "dense",
    "tied": True,
}

EUROBERT = COMMON | {
    "rotary_base": 250000.0,
    "norm": "pre",
    "norm_type": "rms",
    "layer_norm_epsilon": 1e-5,
    "feed_forward": "swiglu",
    "biases": (),
    "prediction": "linear",
    "tied": False,
}

GTE = COMMON | {
    "rotary_base": 160000.0,
    "norm": "post",
    "norm_type": "layer",
    "layer_norm_epsilon": 1e-12,
    "feed_forward": "geglu",
    "biases": ("attention", "output", "outer", "prediction", "vocabulary"),
    "token_types": 1,
    "prediction": "dense",
    "tied": True,
}

SMALL = {"hidden": 64, "heads": 4, "layers": 4, "intermediate": 96}
MEDIUM = {"hidden": 96, "heads": 6, "layers": 6, "intermediate": 80}
LARGE = {"hidden": 128, "heads": 4, "layers": 7, "intermediate": 112}

BIASES = ("attention", "output", "inner", "outer")

MODELS = {
    "ModernBert-small": MODERNBERT | SMALL,
    "ModernBert-medium": MODERNBERT | MEDIUM | {"rotary_local_base": 160000.0},  # as in mmBERT
    "ModernBert-large": MODERNBERT
    | LARGE
    | {
        "biases": (*BIASES, "prediction", "vocabulary"),
        "norm_type": "layer",
        "full_layers": ("1", "5"),
    },
    "EuroBert-small": EUROBERT | SMALL | {"key_value_heads": 2},
    "EuroBert-medium": EUROBERT | MEDIUM | {"key_value_heads": 2, "biases": BIASES},
    "EuroBert-large": EUROBERT | LARGE | {"key_value_heads": 1},
    "Gte-small": GTE | SMALL,
    "Gte-medium": GTE | MEDIUM | {"token_types": 0},
    # gte-multilingual-base has NTK scaling of a base of 20000 by 8. These are its values for heads
    # of 32.
    "Gte-large": GTE | LARGE | {"rotary_factor": 8 ** (1 / 16)},
}
"""Options by name; a name begins with that of the class in transformers. Some models have biases
that released models lack, if transformers' config has an option for them."""


class Options:
    """The options of a model as attributes."""

    def __init__(self, **values):
        self.__dict__.update(values)


def options(name, **changes):
    """The options of a model of `MODELS`, with changes."""
    return Options(**MODELS[name] | changes)


def drawn(model, seed=0, width=2.4):
    """Random parameters of an encoder and of its masked-LM head, including norms and biases.

    The standard deviation is `width / sqrt(hidden)`, 0.3 for 64. It is so large that each part of
    the model affects the output.
    """
    rng, hidden = np.random.default_rng(seed), model.hidden

    def draw(tree, name=""):
        if isinstance(tree, dict):
            return {part: draw(shape, part) for part, shape in tree.items()}
        return (name == "scale") + width * hidden**-0.5 * rng.normal(size=tree)

    norm = {"scale": (hidden,)}
    if model.norm_type == "layer":
        norm["bias"] = (hidden,)
    head = {"bias": (VOCABULARY,)} if "vocabulary" in model.biases else {}
    if model.prediction == "dense":
        bias = {"bias": (hidden,)} if "prediction" in model.biases else {}
        head |= {"dense": {"kernel": (hidden, hidden)} | bias, "norm": norm}
    if not model.tied:
        head["word"] = (VOCABULARY, hidden)
    return draw(shapes(model, VOCABULARY)), draw(head)
