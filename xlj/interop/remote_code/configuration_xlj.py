"""The config of an xlj encoder: XLM-R's keys, and those of its relative position bias."""

from transformers import PretrainedConfig


class XljConfig(PretrainedConfig):
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
        vocab_size=250002,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        max_position_embeddings=514,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        initializer_range=0.02,
        position_bias="gated",
        position_buckets=32,
        position_distance=128,
        absolute_positions=True,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=True,
        **others,
    ):
        if position_bias not in ("none", "t5", "gated"):
            raise ValueError(f"position_bias={position_bias!r}: there are none, t5 and gated")
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.layer_norm_eps = layer_norm_eps
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.initializer_range = initializer_range
        self.position_bias = position_bias
        self.position_buckets = position_buckets
        self.position_distance = position_distance
        self.absolute_positions = absolute_positions
        super().__init__(
            bos_token_id=bos_token_id,
            pad_token_id=pad_token_id,
            eos_token_id=eos_token_id,
            tie_word_embeddings=tie_word_embeddings,
            **others,
        )
