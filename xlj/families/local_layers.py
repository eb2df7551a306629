"""The layers of an encoder with local attention, as in ModernBERT."""

from xlj.config import Model


def is_local(model: Model, layer: int) -> bool:
    """Returns whether attention of a layer, counted from 0, is limited to a window.

    Without `model.local_attention`, no layer is local. Otherwise the layers in `model.full_layers`
    are not local. If `full_layers` is empty, every n-th layer is not local, from layer 0 on, where
    n is `full_attention_every`.
    """
    if not model.local_attention:
        return False
    if model.full_layers:
        return str(layer) not in model.full_layers
    return layer % model.full_attention_every != 0
