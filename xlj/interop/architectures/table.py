"""The table of an architecture: its tensors as parameters of ours, and its keys of config.json."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from xlj.config import Model
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.io.json_file import Record

Share = tuple[int, int]
"""A share of the outputs of a layer: (its number from 0, how many equal shares there are)."""

WHOLE: Share = (0, 1)
SPECIALS = {"bos": BOS, "pad": PAD, "eos": EOS}
SIZES = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "init_std": "initializer_range",
}
"""Keys of `Model`, and what config.json calls them in all families."""

BERT_SIZES = SIZES | {
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "layer_norm_epsilon": "layer_norm_eps",
    "token_types": "type_vocab_size",
}
"""And in families whose config.json has BERT's keys."""

SURPLUS = "surplus/"
"""What the names of rows begin with that belong to no id of the tokenizer."""


IGNORED = (
    (r"(.*\.)?position_ids|(.*\.)?token_type_ids", "a constant, not a weight"),
    (r"(.*\.)?rotary_emb\.(\w+_)?inv_freq", "a constant, not a weight"),
    (r"(.*\.)?pooler\..*", "xlj pools without a layer of its own"),
    (r"cls\.seq_relationship\..*", "the head of BERT's next sentence prediction"),
    (r"(classifier|qa_outputs|score)\..*", "the head of a task that xlj does not have"),
)
"""(regular expression over a tensor's name, why it is not read)."""


class Tensor(NamedTuple):
    """A parameter of ours under the name that it has in a Hugging Face folder.

    Kernels are transposed. Where one tensor of theirs is several parameters of ours (ModernBERT's
    `Wqkv`), or several of theirs are one of ours (EuroBERT's `gate_proj` and `up_proj`), a `Tensor`
    is a share of outputs: ours along the last axis, theirs along the first.
    """

    ours: str  # e.g. layers/attention/query/kernel
    theirs: str  # e.g. encoder.layer.{layer}.attention.self.query.weight
    of_ours: Share = WHOLE
    of_theirs: Share = WHOLE
    first_layer: int = 0  # the first layer that has it

    @property
    def stacked(self) -> bool:
        """Whether there is one tensor of theirs a layer."""
        return self.ours.startswith("layers/")

    @property
    def transposed(self) -> bool:
        """Whether theirs is [out, in] where ours is [in, out]."""
        return self.ours.endswith("kernel")

    @property
    def head(self) -> str:
        """The head that it belongs to, e.g. prediction_head; nothing if it is the encoder's."""
        part = self.ours.removeprefix(SURPLUS).partition("/")[0]
        return part if part.endswith("_head") else ""

    @property
    def by_word(self) -> bool:
        """Whether its rows belong to the ids of the vocabulary, or to none of them (`SURPLUS`)."""
        ours = self.ours.removeprefix(SURPLUS)
        return ours in ("embeddings/word", "prediction_head/bias", "prediction_head/word")


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The names of one family of models, and the keys of its config.json.

    Attributes:
      prefix: of the encoder's tensors, in a model with a head.
      tensors: of the encoder, without prefix, and of all heads.
      classes: those of transformers by their head; `""` is the encoder alone.
      copies: tensors that must equal another (tied weights), by their name.
      first_position: the row of the position table that position 0 reads. RoBERTa counts from the
        row after that of `<pad>`'s id, which is 1 here; `with_pad` makes the others.
      sizes: keys of `Model` and what config.json calls them.
      defaults: values that transformers takes where config.json is silent.
      fixed: keys of config.json with the only value that is read.
      options: config.json, and its name for errors -> further keys of `Model`.
      config: a model -> further keys of config.json. Defined for any model: the keys are of this
        architecture if `options` reads the same model from them.
      specials: ids of ours that config.json names, e.g. bos for `bos_token_id`.
      token_types: the fewest rows of its table of token types.
      has_shared_head: its heads of tasks share tensors with that of masked tokens.
      ignored: (regular expression over a tensor's name, why it is not read), besides `IGNORED`.
      names: which of several sets of names for its tensors this one has.
      others: the same architecture with the other sets of names.
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
        """The architecture with another set of names; as it is, if it has none such."""
        other = next((other for other in self.others if other.names == names), self)
        return dataclasses.replace(
            self, prefix=other.prefix, tensors=other.tensors, names=other.names
        )

    def named_as(self, tensors: Collection[str]) -> "Architecture":
        """The architecture with the set of names that most of these tensors have."""

        def count(other: Architecture) -> int:
            names = {tensor.theirs.format(layer=0) for tensor in other.tensors}
            return sum(name in tensors or f"{other.prefix}.{name}" in tensors for name in names)

        return self.named(max((self, *self.others), key=count).names)


def module(ours: str, theirs: str, **shares: Any) -> tuple[Tensor, Tensor]:
    """Weight and bias of a linear layer or a norm; `shares` are further fields of both."""
    first = "scale" if ours.endswith("norm") else "kernel"
    return (
        Tensor(f"{ours}/{first}", f"{theirs}.weight", **shares),
        Tensor(f"{ours}/bias", f"{theirs}.bias", **shares),
    )


def modules(names: Mapping[str, str], ours: str = "", theirs: str = "") -> Iterator[Tensor]:
    """Weights and biases of modules by our name, behind the prefixes of all of them."""
    for name, other in names.items():
        yield from module(ours + name, theirs + other)


EMBEDDINGS = Tensor("embeddings/word", "embeddings.word_embeddings.weight")
TOKEN_TYPE = Tensor("embeddings/token_type", "embeddings.token_type_embeddings.weight")
