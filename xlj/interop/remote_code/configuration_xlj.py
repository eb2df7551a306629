"""The config of an xlj encoder: XLM-R's keys, and keys of the relative position bias."""

from transformers import XLMRobertaConfig


class XljConfig(XLMRobertaConfig):
    """The values of `config.json`: XLM-R's keys, with their meaning in XLM-R, and the keys below.

    Args:
      position_bias: the bias of attention scores that depends on the distance of two tokens:
        "none", "t5" (one learned number for each head and bucket of distances), or "gated" (T5's
        bias, multiplied by a gate that depends on the query).
      position_buckets: the number of buckets of distances. Keys before and after the query have
        half of the buckets each.
      position_distance: the distance in tokens from which all distances share the last bucket.
      absolute_positions: whether to add a learned position embedding to each token. If not,
        `max_position_embeddings` is ignored, and inputs can have any length.

    Raises:
      ValueError: if `position_bias` is unknown.
    """

    model_type = "xlj"

    def __init__(
        self,
        position_bias="gated",
        position_buckets=32,
        position_distance=128,
        absolute_positions=True,
        **others,
    ):
        if position_bias not in ("none", "t5", "gated"):
            raise ValueError(f"position_bias={position_bias!r}: expected none, t5 or gated")
        self.position_bias = position_bias
        self.position_buckets = position_buckets
        self.position_distance = position_distance
        self.absolute_positions = absolute_positions
        super().__init__(**others)
