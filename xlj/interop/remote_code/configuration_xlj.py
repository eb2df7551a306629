"""The config of an xlj encoder: XLM-R's keys, and keys of the relative position bias."""

from transformers import XLMRobertaConfig


class XljConfig(XLMRobertaConfig):
    """The values of `config.json`. All other keys are XLM-R's and have the same meaning.

    Args:
      position_bias: the bias that attention adds for the distance of two tokens: "none", "t5" (one
        learned number per head and bucket of distances) or "gated" ("t5", gated by the query).
      position_buckets: the number of buckets of distances; each direction has half of them.
      position_distance: all distances from this one on share a bucket.
      absolute_positions: whether to add a learned vector of the position to each token. If not,
        `max_position_embeddings` is not read, and inputs can have any length.

    Raises:
      ValueError: if the position bias is unknown.
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
