"""XLM-R's encoder with a relative position bias in PyTorch, equivalent to xlj's encoder.

The bias is T5's (Raffel et al., 2020, section 2.1) or the gated bias of XLM-E (Chi et al., 2021,
section 3.3). Weights have XLM-R's names. The bias adds the weights `position_bias.weight`, and in
the attention of each layer `gates.weight` and `gate_scale`.
"""

import math

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.xlm_roberta import modeling_xlm_roberta as xlm_r

from .configuration_xlj import XljConfig


class XljEmbeddings(nn.Module):
    """Word, token type and optional absolute position embeddings, followed by LayerNorm."""

    def __init__(self, config):
        super().__init__()
        size, self.pad = config.hidden_size, config.pad_token_id
        self.word_embeddings = nn.Embedding(config.vocab_size, size, padding_idx=self.pad)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        self.position_embeddings = None
        if config.absolute_positions:
            positions = config.max_position_embeddings
            self.position_embeddings = nn.Embedding(positions, size, padding_idx=self.pad)
        self.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids, inputs_embeds, token_type_ids, position_ids):
        x = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        if token_type_ids is None:
            token_type_ids = torch.zeros(x.shape[:2], dtype=torch.long, device=x.device)
        x = x + self.token_type_embeddings(token_type_ids)
        if self.position_embeddings is not None:
            if position_ids is None:
                # As in XLM-R, the first token has the position `pad + 1`, and padding is not
                # counted.
                real = torch.ones(x.shape[:2], dtype=torch.long, device=x.device)
                if input_ids is not None:
                    real = (input_ids != self.pad).long()
                position_ids = real.cumsum(1) * real + self.pad
            x = x + self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(x))


class XljPositionBias(nn.Embedding):
    """T5's bias: one number for each head and bucket of distances, which all layers share."""

    def __init__(self, config):
        super().__init__(config.position_buckets, config.num_attention_heads)
        self.after_offset = half = config.position_buckets // 2
        exact_distances, max_distance = config.position_buckets // 4, config.position_distance

        def bucket(distance):
            if distance < exact_distances:
                return distance
            growth = math.log(distance / exact_distances) / math.log(max_distance / exact_distances)
            return min(exact_distances + int(growth * (half - exact_distances)), half - 1)

        # A list instead of a buffer, because loading weights may leave buffers uninitialised.
        self.bucket_of = [bucket(distance) for distance in range(max_distance + 1)]

    def forward(self, length):
        """Returns the bias [heads, query, key] for a row with this length in tokens."""
        device = self.weight.device
        place = torch.arange(length, device=device)
        difference = place[None, :] - place[:, None]
        bucket_of = torch.tensor(self.bucket_of, device=device)
        bucket = bucket_of[difference.abs().clamp(max=len(self.bucket_of) - 1)]
        return super().forward(bucket + self.after_offset * (difference > 0)).permute(2, 0, 1)


class XljSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, self.heads = config.hidden_size, config.num_attention_heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.gated = config.position_bias == "gated"
        if self.gated:
            # The rows of `gates` are the paper's u (update) and v (reset). `gate_scale` is the
            # paper's w, one number per head.
            self.gates = nn.Linear(hidden // self.heads, 2, bias=False)
            self.gate_scale = nn.Parameter(torch.ones(self.heads))

    def forward(self, x, seen, bias):
        """Computes attention.

        Args:
          x: [rows, length, hidden].
          seen: bool, whether each query attends to each key, broadcast to [rows, heads, query,
            key].
          bias: the position bias, [heads, query, key]; None without a bias.

        Returns:
          The output, with the shape of x, and the probabilities [rows, heads, query, key].
        """

        def heads_of(layer):
            return layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)

        query, key, value = heads_of(self.query), heads_of(self.key), heads_of(self.value)
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        if bias is not None:
            scores = scores + (bias * self.gate(query) if self.gated else bias)
        scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        mixed = self.dropout(weights) @ value
        return mixed.transpose(1, 2).flatten(2), weights

    def gate(self, query):
        """Returns the factor by which the bias is multiplied, [rows, heads, query, 1].

        In the paper the bias is d + g_u d + (1 - g_u) w g_r d, with T5's bias d, update gate g_u,
        reset gate g_r and scale w. This is d times the factor 1 + g_u + (1 - g_u) w g_r.
        """
        update, reset = self.gates(query).sigmoid().unbind(-1)
        return (1 + update + (1 - update) * self.gate_scale[:, None] * reset)[..., None]


class XljLayer(nn.Module):
    """A post-LN layer: attention, then feed-forward.

    The modules are in a ModuleDict so that weights have XLM-R's names.
    """

    def __init__(self, config):
        super().__init__()
        output = xlm_r.XLMRobertaSelfOutput(config)
        self.attention = nn.ModuleDict({"self": XljSelfAttention(config), "output": output})
        self.intermediate = xlm_r.XLMRobertaIntermediate(config)
        self.output = xlm_r.XLMRobertaOutput(config)

    def forward(self, x, seen, bias):
        mixed, weights = self.attention["self"](x, seen, bias)
        x = self.attention["output"](mixed, x)
        return self.output(self.intermediate(x), x), weights


class XljPreTrainedModel(xlm_r.XLMRobertaPreTrainedModel):
    config_class = XljConfig
    config: XljConfig
    supports_gradient_checkpointing = False
    _supports_flash_attn = _supports_sdpa = _supports_flex_attn = False
    _supports_attention_backend = False
    _can_record_outputs = None

    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, XljSelfAttention) and module.gated:
            nn.init.ones_(module.gate_scale)


class XljModel(XljPreTrainedModel):
    """The encoder, without a pooler."""

    def __init__(self, config):
        super().__init__(config)
        self.embeddings = XljEmbeddings(config)
        self.position_bias = None if config.position_bias == "none" else XljPositionBias(config)
        layers = [XljLayer(config) for _ in range(config.num_hidden_layers)]
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(layers)})
        self.post_init()

    def get_input_embeddings(self):
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value):
        self.embeddings.word_embeddings = value

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        position_ids=None,
        inputs_embeds=None,
        output_attentions=None,
        output_hidden_states=None,
        return_dict=None,
        **others,  # arguments of decoders, which are ignored
    ):
        """Encodes tokens as XLM-R does. `hidden_states` has the output of the embeddings, and then
        the output of each layer.

        `attention_mask` is [rows, length] with 0 for padding, or [rows, query, key] for rows with
        several examples. The bias depends on the distance of two tokens in the row. It does not
        depend on `position_ids`, or on padding at either side.
        """
        config = self.config
        if output_attentions is None:
            output_attentions = config.output_attentions
        if output_hidden_states is None:
            output_hidden_states = config.output_hidden_states
        x = self.embeddings(input_ids, inputs_embeds, token_type_ids, position_ids)
        if attention_mask is None:
            attention_mask = torch.ones(x.shape[:2], device=x.device)
        seen = (attention_mask if attention_mask.dim() == 3 else attention_mask[:, None]) > 0
        bias = None if self.position_bias is None else self.position_bias(x.shape[1])
        hidden_states, attentions = [x], []
        for layer in self.encoder["layer"]:
            x, weights = layer(x, seen[:, None], bias)
            if output_hidden_states:
                hidden_states.append(x)
            if output_attentions:
                attentions.append(weights)
        output = BaseModelOutput(
            last_hidden_state=x,
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )
        as_object = config.return_dict if return_dict is None else return_dict
        return output if as_object else output.to_tuple()


class XljTask(XljPreTrainedModel):
    """Base class of models with a head: XLM-R's head on xlj's encoder."""

    def __init__(self, config):
        # XLM-R's constructor makes the head (which depends on the release of transformers) and an
        # encoder. The next line replaces this encoder. `from_pretrained` calls the constructor on
        # the meta device, so the unused encoder needs no memory.
        super().__init__(config)
        self.roberta = XljModel(config)
        self.post_init()


class XljForMaskedLM(XljTask, xlm_r.XLMRobertaForMaskedLM):
    pass


class XljForSequenceClassification(XljTask, xlm_r.XLMRobertaForSequenceClassification):
    pass


class XljForTokenClassification(XljTask, xlm_r.XLMRobertaForTokenClassification):
    pass


class XljForQuestionAnswering(XljTask, xlm_r.XLMRobertaForQuestionAnswering):
    pass
