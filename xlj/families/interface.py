"""A family of encoders, and the table of an architecture: tensor names, keys of config.json."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from xlj.config import Model
from xlj.config.fields import Value
from xlj.io.json_file import Record

Share = tuple[int, int]
"""A share of a linear layer's outputs: (zero-based index, number of equal shares)."""

WHOLE: Share = (0, 1)
SPECIALS = {"bos": "bos", "pad": "pad", "eos": "eos"}
SIZES = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "init_std": "initializer_range",
}
"""Keys of `Model` and their names in the config.json of most families."""

BERT_SIZES = SIZES | {
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "layer_norm_epsilon": "layer_norm_eps",
    "token_types": "type_vocab_size",
}
"""Keys of `Model` and their names in the config.json of families with BERT's keys."""

SURPLUS = "surplus/"
"""Prefix of the parameters with surplus rows: embedding rows that have no id in the tokenizer."""


IGNORED = (
    (r"(.*\.)?position_ids|(.*\.)?token_type_ids", "a constant, not a weight"),
    (r"(.*\.)?rotary_emb\.(\w+_)?inv_freq", "a constant, not a weight"),
    (r"(.*\.)?pooler\..*", "xlj pools without a learned layer"),
    (r"cls\.seq_relationship\..*", "the head of BERT's next sentence prediction"),
    (r"(classifier|qa_outputs|score)\..*", "part of a task head that xlj does not support"),
)
"""Tensors that an import ignores: (regular expression for a tensor's name, reason)."""


class Tensor(NamedTuple):
    """A parameter of xlj and the Hugging Face tensor that it corresponds to.

    One Hugging Face tensor may contain several parameters of xlj (ModernBERT's `Wqkv`). One
    parameter of xlj may combine several tensors (EuroBERT's `gate_proj` and `up_proj`). A `Tensor`
    then maps equal shares of the outputs, which are on the last axis in xlj and on the first axis
    in Hugging Face.

    Attributes:
      xlj_name: name of the parameter, e.g. `layers/attention/query/kernel`.
      hf_name: name of the tensor, e.g. `encoder.layer.{layer}.attention.self.query.weight`.
      xlj_share: the share of xlj's parameter.
      hf_share: the share of the Hugging Face tensor.
      first_layer: zero-based index of the first layer that has this tensor.
    """

    xlj_name: str
    hf_name: str
    xlj_share: Share = WHOLE
    hf_share: Share = WHOLE
    first_layer: int = 0

    @property
    def is_stacked(self) -> bool:
        """Whether Hugging Face stores one tensor per layer, which xlj stacks."""
        return self.xlj_name.startswith("layers/")

    @property
    def is_transposed(self) -> bool:
        """Whether Hugging Face stores [outputs, inputs] and xlj [inputs, outputs]."""
        return self.xlj_name.endswith("kernel")

    @property
    def head(self) -> str:
        """The head that the tensor belongs to, e.g. prediction_head; empty for the encoder."""
        part = self.xlj_name.removeprefix(SURPLUS).partition("/")[0]
        return part if part.endswith("_head") else ""

    @property
    def has_vocabulary_rows(self) -> bool:
        """Whether each row belongs to an id of the vocabulary, or is a surplus row (`SURPLUS`)."""
        name = self.xlj_name.removeprefix(SURPLUS)
        return name in ("embeddings/word", "prediction_head/bias", "prediction_head/word")


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Tensor names and config.json keys of the models with one `model_type` of transformers.

    Attributes:
      prefix: prefix of the encoder's tensors in a model with a head.
      tensors: tensors of the encoder, named without the prefix, and then tensors of all heads that
        transformers has for this architecture; the head for masked tokens comes first.
      class_prefix: the name of the encoder's class in transformers without its ending `Model`.
      copies: tied tensors, each with the parameter of xlj that it must equal.
      sizes: keys of `Model` and their names in config.json.
      defaults: transformers' defaults for keys that config.json lacks.
      fixed: keys of config.json for which xlj supports one value only, with this value.
      read_config: function that takes a config.json and its path (for errors), and returns further
        keys of `Model` with their values.
      write_config: function that takes a model and returns further keys of config.json. It also
        accepts models that this architecture does not support; for these, `read_config` raises a
        `ConfigError`, or does not read the same model back from the returned keys.
      specials: special tokens whose ids config.json contains, with their roles (`layout.ROLES`).
        `bos` is the key `bos_token_id`.
      first_position: the row of the position table for position 0.
      has_pad_rows: whether the position table has a row for each id up to that of `<pad>`, so that
        `first_position` is the id of `<pad>` plus 1 (`with_pad`).
      token_types: the minimum number of rows of an exported token type table.
      has_pooler: whether transformers' class without a head has a pooler (`POOLER`): a dense layer
        with tanh on the vector of the first token.
      poolings: the values of `model.task_pooling` that transformers' heads for texts have, each
        with its name in `classifier_pooling` of config.json. The value of `model.task_head` is that
        of the family.
      has_shared_head: whether task heads share tensors with the head for masked tokens.
      ignored: tensors that an import ignores in addition to `IGNORED`, with the same format.
      names: label of this set of tensor names; empty for the standard names.
      others: this architecture with its alternative sets of tensor names.
    """

    model_type: str
    prefix: str
    tensors: tuple[Tensor, ...]
    class_prefix: str
    copies: Mapping[str, str]
    sizes: Mapping[str, str]
    defaults: Mapping[str, Any]
    fixed: Mapping[str, Any]
    read_config: Callable[[Record, str], Record]
    write_config: Callable[[Model], Record]
    specials: Mapping[str, str] = dataclasses.field(default_factory=lambda: SPECIALS)
    first_position: int = 0
    has_pad_rows: bool = False
    token_types: int = 0
    has_pooler: bool = False
    poolings: Mapping[str, str] = dataclasses.field(default_factory=lambda: {"first": ""})
    has_shared_head: bool = False
    ignored: tuple[tuple[str, str], ...] = ()
    names: str = ""
    others: tuple["Architecture", ...] = ()

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads that transformers has; the first, `""`, is the encoder without a head."""
        return tuple(dict.fromkeys(tensor.head for tensor in self.tensors))

    def type_rows(self, model: Model) -> int:
        """Returns the number of rows of the exported token type table.

        It is at least the number of token types that the family's tokenizer produces.
        """
        return max(model.token_types, self.token_types)

    def with_pad(self, pad: int) -> "Architecture":
        """Sets the first row of the position table, if the table has rows up to the id `pad`.

        Args:
          pad: the id of `<pad>` in the Hugging Face folder.
        """
        return dataclasses.replace(self, first_position=pad + 1) if self.has_pad_rows else self

    def with_names(self, names: str) -> "Architecture":
        """Returns the architecture with the set of names that has the label `names`.

        Returns the architecture unchanged if it has no such set.
        """
        other = next((other for other in self.others if other.names == names), self)
        return dataclasses.replace(
            self, prefix=other.prefix, tensors=other.tensors, names=other.names
        )

    def with_names_in(self, tensors: Collection[str]) -> "Architecture":
        """Returns the architecture with the set of names that matches the largest number of
        `tensors` (names in a folder)."""

        def count(other: Architecture) -> int:
            names = {tensor.hf_name.format(layer=0) for tensor in other.tensors}
            return sum(name in tensors or f"{other.prefix}.{name}" in tensors for name in names)

        return self.with_names(max((self, *self.others), key=count).names)


class Family:
    """A family of encoders, which a subclass defines. docs/models.md shows an example.

    Attributes:
      options: the keys of `model` in which the family differs from XLM-R, and their values.
      architectures: the architectures of the family; the first is the architecture of exports.
      separator: the special token between a sentence and its translation; empty for `</s>`.
    """

    options: Mapping[str, Value] = {}
    architectures: tuple[Architecture, ...]
    separator: str = ""

    def values(self, names: Collection[str]) -> dict[str, Value]:
        """Returns the values of keys of `model` in this family."""
        model = dataclasses.asdict(Model()) | dict(self.options)
        return {name: value for name, value in model.items() if name in names}

    def export_as(self, model: Model, markers: str) -> Architecture:
        """Returns the architecture of an export.

        Args:
          markers: how the vocabulary marks words (`layout.Markers`).

        Raises:
          ConfigError: if no architecture has this kind of model and vocabulary.
        """
        return self.architectures[0]


def module(xlj_name: str, hf_name: str, **shares: Any) -> tuple[Tensor, Tensor]:
    """Returns the weight and the bias of a linear layer or a norm.

    Args:
      **shares: further fields of both `Tensor`s.
    """
    first = "scale" if xlj_name.endswith("norm") else "kernel"
    return (
        Tensor(f"{xlj_name}/{first}", f"{hf_name}.weight", **shares),
        Tensor(f"{xlj_name}/bias", f"{hf_name}.bias", **shares),
    )


def modules(
    names: Mapping[str, str], xlj_prefix: str = "", hf_prefix: str = ""
) -> Iterator[Tensor]:
    """Yields the weights and biases of several modules.

    Args:
      names: Hugging Face's name of each module, by xlj's name.
    """
    for xlj_name, hf_name in names.items():
        yield from module(xlj_prefix + xlj_name, hf_prefix + hf_name)


EMBEDDINGS = Tensor("embeddings/word", "embeddings.word_embeddings.weight")
TOKEN_TYPE = Tensor("embeddings/token_type", "embeddings.token_type_embeddings.weight")
POOLER = module("pooler", "pooler.dense")
"""The pooler in transformers. xlj has none: an import ignores it, an export writes the identity."""
