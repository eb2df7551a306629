"""The config of an xlj encoder: XLM-R's keys, and those of its relative position bias."""

from transformers import XLMRobertaConfig


class XljConfig(XLMRobertaConfig):
    """The values of `config.json`; the keys that XLM-R has too mean what they mean there.

    position_bias: what attention adds for the distance of two tokens: "none", "t5" (one learned
      number a head and bucket of distances) or "gated" (that, gated by the query).
    position_buckets: buckets of distances, half of them for each direction.
    position_distance: the distance from which on all share a bucket.
    absolute_positions: whether a learned vector of its position is added to each token. If not,
      `max_position_embeddings` is not read, and inputs may be of any length.

    Raises ValueError for a position bias that there is not.
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
            raise ValueError(f"position_bias={position_bias!r}: there are none, t5 and gated")
        self.position_bias = position_bias
        self.position_buckets = position_buckets
        self.position_distance = position_distance
        self.absolute_positions = absolute_positions
        super().__init__(**others)
