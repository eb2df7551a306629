"""The table of an architecture: its tensor names and its keys of config.json."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from xlj.config import Model
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.io.json_file import Record

Share = tuple[int, int]
"""A share of the outputs of a layer: (index from 0, number of equal shares)."""

WHOLE: Share = (0, 1)
SPECIALS = {"bos": BOS, "pad": PAD, "eos": EOS}
SIZES = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "init_std": "initializer_range",
}
"""Keys of `Model` and their names in config.json, for all families."""

BERT_SIZES = SIZES | {
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "layer_norm_epsilon": "layer_norm_eps",
    "token_types": "type_vocab_size",
}
"""The same for families whose config.json has BERT's keys."""

SURPLUS = "surplus/"
"""Prefix of the names of embedding rows that have no id in the tokenizer."""


IGNORED = (
    (r"(.*\.)?position_ids|(.*\.)?token_type_ids", "a constant, not a weight"),
    (r"(.*\.)?rotary_emb\.(\w+_)?inv_freq", "a constant, not a weight"),
    (r"(.*\.)?pooler\..*", "xlj pools without a learned layer"),
    (r"cls\.seq_relationship\..*", "the head of BERT's next sentence prediction"),
    (r"(classifier|qa_outputs|score)\..*", "the head of a task that xlj does not have"),
)
"""(regular expression for a tensor's name, the reason why it is not read)."""


class Tensor(NamedTuple):
    """A parameter of xlj and the Hugging Face tensor that it corresponds to.

    One Hugging Face tensor may be several parameters of xlj (ModernBERT's `Wqkv`), and several may
    be one parameter (EuroBERT's `gate_proj` and `up_proj`). A `Tensor` is then a share of the
    outputs: of the last axis in xlj, and of the first axis in Hugging Face.

    Attributes:
      xlj_name: e.g. `layers/attention/query/kernel`.
      hf_name: e.g. `encoder.layer.{layer}.attention.self.query.weight`.
      xlj_share: the share of xlj's parameter.
      hf_share: the share of the Hugging Face tensor.
      first_layer: the first layer that has this tensor.
    """

    xlj_name: str
    hf_name: str
    xlj_share: Share = WHOLE
    hf_share: Share = WHOLE
    first_layer: int = 0

    @property
    def stacked(self) -> bool:
        """Whether Hugging Face has one tensor per layer."""
        return self.xlj_name.startswith("layers/")

    @property
    def transposed(self) -> bool:
        """Whether Hugging Face has [out, in] and xlj [in, out]."""
        return self.xlj_name.endswith("kernel")

    @property
    def head(self) -> str:
        """The head that the tensor belongs to, e.g. prediction_head; empty for the encoder."""
        part = self.xlj_name.removeprefix(SURPLUS).partition("/")[0]
        return part if part.endswith("_head") else ""

    @property
    def by_word(self) -> bool:
        """Whether the rows belong to ids of the vocabulary, or are surplus rows (`SURPLUS`)."""
        name = self.xlj_name.removeprefix(SURPLUS)
        return name in ("embeddings/word", "prediction_head/bias", "prediction_head/word")


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Tensor names and config.json keys of one family of models.

    Attributes:
      prefix: prefix of the encoder's tensors in a model with a head.
      tensors: tensors of the encoder, without prefix, and of all heads.
      classes: classes of transformers by head; `""` is the encoder alone.
      copies: tensors that must equal a parameter of xlj (tied weights), by name.
      first_position: the row of the position table for position 0. RoBERTa counts from the row
        after `<pad>`'s id, which is 1 here; `with_pad` sets other values.
      sizes: keys of `Model` and their names in config.json.
      defaults: values that transformers uses for keys that config.json lacks.
      fixed: keys of config.json of which only this value is supported.
      options: takes config.json and its path (for errors); returns further keys of `Model`.
      config: takes a model; returns further keys of config.json. It accepts any model. The model
        has this architecture if `options` reads the same model from these keys.
      specials: xlj's ids that config.json names, e.g. bos for `bos_token_id`.
      token_types: the smallest number of rows of the token type table.
      has_shared_head: whether task heads share tensors with the head for masked tokens.
      ignored: (regular expression for a tensor's name, the reason why it is not read), in addition
        to `IGNORED`.
      names: which of several sets of tensor names this one uses.
      others: the same architecture with the other sets of tensor names.
    """

    model_type: str
    prefix: str
    tensors: tuple[Tensor, ...]
    classes: Mapping[str, str]
    copies: Mapping[str, str]
    first_position: int
    sizes: Mapping[str, str]
    defaults: Mapping[str, Any]
    fixed: Mapping[str, Any]
    options: Callable[[Record, str], Record]
    config: Callable[[Model], Record]
    specials: Mapping[str, int] = dataclasses.field(default_factory=lambda: SPECIALS)
    token_types: int = 0
    has_shared_head: bool = False
    ignored: tuple[tuple[str, str], ...] = ()
    names: str = ""
    others: tuple["Architecture", ...] = ()

    def named(self, names: str) -> "Architecture":
        """Returns the architecture with this set of names; unchanged if it has no such set."""
        other = next((other for other in self.others if other.names == names), self)
        return dataclasses.replace(
            self, prefix=other.prefix, tensors=other.tensors, names=other.names
        )

    def named_as(self, tensors: Collection[str]) -> "Architecture":
        """Returns the architecture with the set of names that fits most of these tensors."""

        def count(other: Architecture) -> int:
            names = {tensor.hf_name.format(layer=0) for tensor in other.tensors}
            return sum(name in tensors or f"{other.prefix}.{name}" in tensors for name in names)

        return self.named(max((self, *self.others), key=count).names)


def module(xlj_name: str, hf_name: str, **shares: Any) -> tuple[Tensor, Tensor]:
    """Returns weight and bias of a linear layer or a norm; `shares` are further fields of both."""
    first = "scale" if xlj_name.endswith("norm") else "kernel"
    return (
        Tensor(f"{xlj_name}/{first}", f"{hf_name}.weight", **shares),
        Tensor(f"{xlj_name}/bias", f"{hf_name}.bias", **shares),
    )


def modules(
    names: Mapping[str, str], xlj_prefix: str = "", hf_prefix: str = ""
) -> Iterator[Tensor]:
    """Yields weights and biases of several modules, given Hugging Face's names by xlj's names."""
    for xlj_name, hf_name in names.items():
        yield from module(xlj_prefix + xlj_name, hf_prefix + hf_name)


EMBEDDINGS = Tensor("embeddings/word", "embeddings.word_embeddings.weight")
TOKEN_TYPE = Tensor("embeddings/token_type", "embeddings.token_type_embeddings.weight")
