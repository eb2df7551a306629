"""Sections of a pretraining config, except `data`: their keys, and when each key is used."""

import dataclasses
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Protocol

from xlj.config.choices import AlignmentOptions
from xlj.config.data_section import Data
from xlj.config.families import registered_families
from xlj.config.fields import (
    Section,
    Unused,
    UsedWhen,
    key,
    lookup,
    only_if_set,
    only_with,
)
from xlj.config.optimizers import read_by_optimizer, registered_optimizers


def read_by_objectives(config: "Sections", path: str) -> Unused | None:
    """Checks that an objective that is on reads a key of the model (names it in `reads`)."""
    readers = config.readers(path)
    if set(readers) & set(config.objectives_on()):
        return None
    return Unused(f"{' and '.join(readers)} are off")


def _for_predicted_languages(config: "Sections", path: str) -> Unused | None:
    """Checks that an objective uses the language embeddings if they are `predicted`."""
    if config.model.language_embeddings != "predicted":
        return None
    return read_by_objectives(config, path)


def _if_not_zero(path: str, reason: str) -> UsedWhen:
    """Returns a condition for keys that families set: the key at `path` is not 0."""

    def check(config: "Sections", _: str) -> Unused | None:
        return None if lookup(config, path) else Unused(reason, allowed_in_recipes=True)

    check.__doc__ = f"only if `{path}` is not 0"
    return check


def _for_pre_norm(config: "Sections", path: str) -> Unused | None:
    """only with `model.norm` = `pre` or `embeddings`"""
    if config.model.norm != "post":
        return None
    return Unused("model.norm=post has no norm at the end")


_for_local_layers = _if_not_zero("model.local_attention", "model.local_attention is 0")


def _for_rotary_local_layers(config: "Sections", path: str) -> Unused | None:
    """only if `model.local_attention` and `model.rotary_base` are not 0"""
    return _for_local_layers(config, path) or _for_rotary(config, path)


_for_rotary = _if_not_zero("model.rotary_base", "model.rotary_base is 0")
_for_dropout = _if_not_zero("model.dropout", "model.dropout is 0")

BIASES = ("attention", "output", "inner", "outer", "prediction", "vocabulary")
"""The names that `model.biases` may contain."""

ATTENTION = ("auto", "triton", "tpu", "cudnn", "blocks", "chunks", "dense")
"""The names that `model.attention` may contain."""

DROPOUT_PARTS = ("embeddings", "attention", "feed_forward")
"""The names that `model.dropout_parts` may contain."""

TASK_POOLINGS = ("first", "mean", "late")
"""The values of `model.task_pooling`."""

PAIR_MARKS = ("types", "positions", "separator")
"""The names that `model.pair_marks` may contain."""

_distance_key = partial(key, used_when=only_with("model.position_bias", "t5", "gated"))


@dataclasses.dataclass(frozen=True)
class Model(Section, path="model"):
    family: str = key(
        "xlm_r",
        "family of the model: xlm_r, modernbert (also mmBERT and Ettin), eurobert or gte. On the "
        "command line, this key sets all options that distinguish families, and other flags "
        "override these options. Recipes call `families.set_family` instead",
        choices=registered_families(),
    )
    layers: int = key(12, "number of transformer layers", low=1)
    hidden: int = key(768, "width of the hidden vectors", low=1)
    heads: int = key(12, "number of attention heads", low=1)
    key_value_heads: int = key(
        0,
        "number of key and value heads (grouped-query attention), each shared by the same number "
        "of query heads; 0: the value of heads",
        low=0,
    )
    local_attention: int = key(
        0,
        "window of local attention layers in tokens, half of it to each side; 0: no layer is local",
        low=0,
    )
    full_attention_every: int = key(
        3,
        "with the value n, layers 0, n, 2n, ... attend to the whole example, and the other layers "
        "are local",
        low=1,
        used_when=_for_local_layers,
    )
    full_layers: tuple[str, ...] = key(
        (),
        "zero-based numbers of the layers that attend to the whole example; empty: every layer "
        "that full_attention_every selects",
        used_when=_for_local_layers,
    )
    intermediate: int = key(3072, "inner width of the feed-forward layers", low=1)
    feed_forward: str = key(
        "gelu",
        "activation of the feed-forward layers. gelu: GELU (XLM-R); geglu: gated by GELU "
        "(ModernBERT, gte); swiglu: gated by SiLU (EuroBERT)",
        choices=("gelu", "geglu", "swiglu"),
    )
    biases: tuple[str, ...] = key(
        BIASES,
        "linear layers with a bias: attention (query, key and value), output (of attention), inner "
        "and outer (of the feed-forward layer), prediction (dense layer of the masked-token head), "
        "vocabulary (logits of the masked-token head)",
    )
    positions: int = key(
        514,
        "size of the position table. The first token has position 2, as in XLM-R, so a row of text "
        "has at most positions - 2 tokens",
        low=3,
    )
    absolute_positions: bool = key(
        True,
        "add a learned vector for each position; if false, model.positions only limits the length "
        "of a row",
    )
    rotary_base: float = key(
        0.0, "base of the wavelengths of rotary positions; 0: no rotary positions", low=0
    )
    rotary_local_base: float = key(
        0.0,
        "rotary_base in local layers; 0: the value of rotary_base",
        low=0,
        used_when=_for_rotary_local_layers,
    )
    rotary_factor: float = key(
        1.0,
        "number by which rotary positions are divided",
        low=1e-6,
        used_when=_for_rotary,
    )
    token_types: int = key(
        0,
        "number of token types. The vector of the first type is added to every token (BERT, "
        "RoBERTa); 0: no token types",
        low=0,
    )
    pair_marks: tuple[str, ...] = key(
        (),
        "what marks the second sentence of a pair, in addition to the `</s>` before it. types: its "
        "tokens have the second token type (BERT); positions: its positions start at 0 (XLM), and "
        "do not continue after the first sentence; separator: the vocabulary's separator, such as "
        "EuroBERT's `<|parallel_sep|>`, replaces this `</s>`",
    )
    position_bias: str = key(
        "none",
        "bias of attention scores that depends on the distance of two tokens. none: no bias; t5: a "
        "learned number per head and bucket of distances (T5); gated: the bias of t5, gated by the "
        "query (XLM-E)",
        choices=("none", "t5", "gated"),
    )
    position_buckets: int = _distance_key(
        32, "number of buckets of token distances, half of them for each direction", low=4
    )
    position_distance: int = _distance_key(
        128, "distance from which on all distances share one bucket", low=2
    )
    dropout: float = key(
        0.1, "dropout of embeddings and of every sub-layer's output", low=0, high=0.9
    )
    dropout_parts: tuple[str, ...] = key(
        DROPOUT_PARTS,
        "parts of the model with dropout after them: embeddings, attention, feed_forward",
        used_when=_for_dropout,
    )
    attention_dropout: float = key(0.1, "dropout of attention probabilities", low=0, high=0.9)
    attention: str = key(
        "auto",
        "how attention is computed: names of implementations in the order in which they are asked, "
        "with commas between them. triton: kernels for GPUs from Ampere on; tpu: kernels for TPUs; "
        "cudnn: cuDNN, without dropout; blocks: local windows in blocks; chunks: in a loop over "
        "queries; dense: with the scores of all token pairs in memory; module:function: your own "
        "(docs/attention.md); auto: the fastest of xlj's that can compute a layer",
    )
    norm: str = key(
        "post",
        "position of the norms. post: after the embeddings and each sub-layer (XLM-R); pre: before "
        "each sub-layer and after the last layer (XLM-R XL); embeddings: as pre, but the first "
        "norm is after the embeddings (ModernBERT)",
        choices=("post", "pre", "embeddings"),
    )
    norm_type: str = key(
        "layer",
        "type of the norms. layer: LayerNorm; unbiased: LayerNorm without bias (ModernBERT); rms: "
        "RMSNorm (EuroBERT)",
        choices=("layer", "unbiased", "rms"),
    )
    middle_norm: bool = key(
        False,
        "also apply the last norm to the vectors of earlier layers that alignment and retrieval "
        "read",
        used_when=_for_pre_norm,
    )
    layer_norm_epsilon: float = key(1e-5, "epsilon of every norm", low=0)
    prediction: str = key(
        "dense",
        "masked-token head. dense: a dense layer before the logits; linear: the logits only "
        "(EuroBERT)",
        choices=("dense", "linear"),
    )
    tied: bool = key(
        True,
        "the masked-token head uses the word embeddings; if false, the head has a separate table",
    )
    task_head: str = key(
        "tanh",
        "head of fine-tuning tasks before its logits. tanh: a dense layer and tanh (XLM-R, BERT, "
        "gte); gelu: a dense layer and GELU (EuroBERT), both for whole texts only; gelu_norm: a "
        "dense layer, GELU and a norm as in the masked-token head, also for single tokens "
        "(ModernBERT)",
        choices=("tanh", "gelu", "gelu_norm"),
    )
    task_pooling: str = key(
        "first",
        "what the head of a task on whole texts reads. first: the vector of `<s>` (XLM-R); mean: "
        "the mean vector of all tokens, with special tokens; late: each token, and the text's "
        "logits are the mean (EuroBERT)",
        choices=TASK_POOLINGS,
    )
    init_std: float = key(0.02, "standard deviation of initial weights", low=0)
    dtype: str = key(
        "float32",
        "type of matrix products and of activations between them; parameters, the residual stream, "
        "norms and reductions are float32. auto: float32 on CPUs, bfloat16 on GPUs and TPUs, "
        "resolved when a run starts",
        choices=("auto", "float32", "bfloat16"),
    )
    scan_layers: bool = key(
        True, "compile one layer and loop over it; if false, compile all layers unrolled"
    )
    remat: str = key(
        "none",
        "what the backward pass recomputes to save memory. none: almost nothing; products: each "
        "layer except its matrix products and attention; all: each layer",
        choices=("none", "products", "all"),
    )
    language_embeddings: str = key(
        "none",
        "tokens to which a vector of their language is added. none: no tokens; predicted: tokens "
        "to predict from another language (selected tokens of CAMLM, placeholders of BTMLM); all: "
        "all tokens",
        choices=("none", "predicted", "all"),
        used_when=_for_predicted_languages,
    )

    @property
    def groups(self) -> int:
        """The number of heads of keys and values."""
        return self.key_value_heads or self.heads

    @property
    def has_own_head(self) -> bool:
        """Whether the masked-token head has its own parameters."""
        return self.prediction == "dense" or not self.tied or "vocabulary" in self.biases

    def dropout_of(self, part: str) -> float:
        """Returns the dropout rate after one of `DROPOUT_PARTS`."""
        return self.dropout if part in self.dropout_parts else 0.0


KEYS_OF_RUN = (
    *("dropout", "attention_dropout", "attention", "dtype", "scan_layers", "remat"),
    *("language_embeddings", "middle_norm"),
)
"""The keys of `model` that the config of a run decides, whatever model it starts from."""

MOST_STEPS = 2**31 - 1
"""The maximum number of steps, since devices count steps in int32."""

_DATA = ("tok", "ep")
_duration_key = partial(key, low=0, high=MOST_STEPS, duration=(*_DATA, "%"))

FREEZABLE = {
    "embeddings": ("embeddings",),
    "layers": ("layers", "position_bias", "final_norm"),
}
"""The names that `optimizer.frozen` may contain, with their parts of the encoder's parameters."""


@dataclasses.dataclass(frozen=True)
class Optimizer(Section, path="optimizer"):
    name: str = key(
        "adamw",
        "optimizer; docs/train.md shows how to add your own",
        choices=registered_optimizers(),
    )
    learning_rate: float = key(1e-4, "peak learning rate", low=0)
    schedule: str = key(
        "linear",
        "learning rate after the warm-up. linear: falls linearly to floor by the end of the run; "
        "cosine: falls as a cosine; sqrt: falls as 1 - sqrt(x), for the elapsed share x of the "
        "decay; constant: stays at the peak; wsd: stays at the peak, then decays over decay_steps. "
        "The checkpoint before the decay of wsd is never deleted",
        choices=("linear", "cosine", "sqrt", "constant", "wsd"),
    )
    warmup_steps: int = _duration_key(0, "duration of the linear warm-up")
    decay_steps: int = _duration_key(
        0, "duration of the final decay", used_when=only_with("optimizer.schedule", "wsd")
    )
    decay: str = key(
        "linear",
        "shape of the final decay",
        choices=("linear", "cosine", "sqrt"),
        used_when=only_with("optimizer.schedule", "wsd"),
    )
    floor: float = key(
        0.0,
        "learning rate at the end of a decay, as a share of the peak",
        low=0,
        high=1,
        used_when=only_with("optimizer.schedule", "linear", "cosine", "sqrt", "wsd"),
    )
    b1: float = key(0.9, "AdamW's beta 1", low=0, high=0.999999, used_when=read_by_optimizer)
    b2: float = key(0.999, "AdamW's beta 2", low=0, high=0.999999, used_when=read_by_optimizer)
    epsilon: float = key(1e-6, "AdamW's epsilon", low=1e-30, used_when=read_by_optimizer)
    momentum: float = key(
        0.95,
        "Muon: decay of the moving average of the gradient of each kernel; other parameters use "
        "AdamW with b1 and b2",
        low=0,
        high=0.999999,
        used_when=read_by_optimizer,
    )
    weight_decay: float = key(
        0.01,
        "decoupled weight decay; biases and norms do not decay unless decay_multipliers selects "
        "them",
        low=0,
    )
    decoupling: str = key(
        "partly",
        "factor of weight_decay in a step. partly: the learning rate (AdamW in PyTorch and optax); "
        "fully: the learning rate divided by its peak (ModernBERT, mmBERT)",
        choices=("partly", "fully"),
        used_when=only_if_set("optimizer.weight_decay"),
    )
    clip_norm: float = key(0.0, "maximum global norm of the gradient; 0: no clipping", low=0)
    average: float = key(
        0.0,
        "decay of a moving average of the parameters, such as 0.999. Checkpoints also contain the "
        "average, and the path WORKDIR/average loads it. 0: no average",
        low=0,
        high=0.999999,
    )
    layer_decay: float = key(
        1.0,
        "learning rate of each layer divided by the rate of the layer above. Heads have the peak "
        "rate, the last layer the peak times layer_decay, and the embeddings the peak times "
        "layer_decay to the power of model.layers + 1 (ERNIE-M: 0.8)",
        low=0,
        high=1,
    )
    frozen: tuple[str, ...] = key(
        (),
        "parts that are not trained: embeddings, layers (including the position bias and the "
        "final norm)",
    )
    rate_multipliers: tuple[str, ...] = key(
        (),
        "factors of the learning rate, as REGEX=FACTOR. The first REGEX that matches the whole "
        "name of a parameter, such as layers/attention/query/kernel, applies. The factor 0 freezes "
        "the parameter",
    )
    decay_multipliers: tuple[str, ...] = key(
        (),
        "factors of the weight decay, in the form of rate_multipliers; .*=1 also decays biases and "
        "norms",
        used_when=only_if_set("optimizer.weight_decay"),
    )


def _for_duration(config: "Sections", path: str) -> Unused | None:
    if isinstance(config.train.steps, str):
        return None
    return Unused("train.steps is a number of steps", allowed_in_recipes=True)


@dataclasses.dataclass(frozen=True)
class Train(Section, path="train"):
    steps: int = _duration_key(
        100_000,
        "duration of the run: optimizer steps, tokens without padding (3e9tok), or passes over "
        "the rows (2ep); 0 in fine-tuning: no training, score the head of init_from",
        duration=_DATA,
    )
    fewest_steps: int = key(
        1,
        "minimum number of steps if train.steps is in tokens or passes",
        low=1,
        high=MOST_STEPS,
        used_when=_for_duration,
    )
    batch_warmup: int = _duration_key(
        0,
        "duration over which batches grow from first_microbatches to gradient_accumulation_steps, "
        "one microbatch at a time. It must end by the start of the first of `phases`. 0: all "
        "batches are full",
        duration=_DATA,
    )
    first_microbatches: int = key(
        1,
        "number of microbatches in the first step, less than train.gradient_accumulation_steps",
        low=1,
        used_when=only_if_set("train.batch_warmup"),
    )
    seed: int = key(0, "seed of initial weights, batches, masks and dropout", low=0, high=2**32 - 1)
    log_every: int = key(100, "steps between lines of training metrics", low=1)
    eval_every: int = key(
        5_000,
        "steps between evaluations on held-out text, or percent of the run (10%); in fine-tuning, "
        "between evaluations on task.dev, each with a checkpoint",
        low=1,
        duration=("%",),
    )
    eval_rows: int = key(
        64, "maximum number of held-out rows per language or pair in an evaluation", low=0
    )
    checkpoint_every: int = key(
        5_000, "steps between checkpoints, or percent of the run (10%)", low=1, duration=("%",)
    )
    keep_checkpoints: int = key(
        2,
        "number of latest checkpoints to keep; checkpoints before a decay are kept in addition",
        low=1,
    )
    best_metric: str = key(
        "",
        "metric of the evaluation, such as eval/word_alignment/agreement, that selects the best "
        "checkpoint. Each evaluation then saves a checkpoint. The one with the highest value is "
        "kept in addition, and commands load it from the workdir instead of the latest one. With a "
        "minus before the name, the lowest value is the best. Empty: the latest checkpoints only",
    )
    patience: int = key(
        0,
        "number of evaluations in a row without a better train.best_metric after which the run "
        "ends; only evaluations in the last of `phases` count. 0: the run ends after train.steps",
        low=0,
        used_when=only_if_set("train.best_metric"),
    )
    damaged_checkpoint: str = key(
        "stop",
        "what to do on resume if the latest checkpoint is damaged. stop: stop with an error; "
        "before: move the damaged checkpoint away and resume from the checkpoint before it. With "
        "the value `before`, a run reads the whole latest checkpoint first, to detect damage",
        choices=("stop", "before"),
    )
    allow_change: tuple[str, ...] = key(
        (),
        "keys that a run may change on resume although they affect its result, such as "
        "optimizer.learning_rate,model.dropout",
    )
    gradient_accumulation_steps: int = key(
        1, "number of microbatches into which the rows of a step are split", low=1
    )
    max_skipped_steps: int = key(
        20,
        "number of consecutive steps with a non-finite loss or gradient that a run skips before it "
        "stops",
        low=0,
    )
    metrics_hook: str = key(
        "",
        "your own module:function, called with the step and a dict of metrics at each log line, "
        "for example for W&B or MLflow",
    )


HELD_OUT = "held_out"
"""The retrieval source that means the held-out sentence pairs of the run."""


def _for_retrieval(config: "Sections", path: str) -> Unused | None:
    """Checks that a source is set and that, for `held_out`, an objective reads sentence pairs."""
    source = config.evaluation.retrieval.source
    if not source:
        return None if path.endswith(".source") else Unused("evaluation.retrieval.source is empty")
    if HELD_OUT not in source or "data.parallel" in config.row_sources():
        return None
    reason = "no objective that is on reads sentence pairs, so none are held out"
    return Unused(reason, allowed_in_recipes=True)


_VECTOR_LAYER = (
    "layer of the sentence vectors; 0: the embeddings, -1: the layer at two thirds of the depth"
)
_retrieval_key = partial(key, used_when=_for_retrieval)


@dataclasses.dataclass(frozen=True)
class RetrievalEvaluation(Section, path="evaluation.retrieval"):
    """Retrieval during training: the accuracy@1, F1 and xsim that `xlj.retrieve` prints, with
    cosines of mean vectors."""

    source: tuple[str, ...] = _retrieval_key(
        (),
        "held_out for the held-out pairs of data.parallel; or templates of files with {pair}, or "
        "with {source} and {target}: TSV, or two line-aligned files joined by '|'. For each "
        "language pair, the first file that exists is read. Empty: retrieval is not evaluated",
    )
    pairs: tuple[str, ...] = _retrieval_key((), "language pairs to evaluate; empty: data.pairs")
    sentences: int = _retrieval_key(
        200,
        "maximum number of sentence pairs per language pair; fewer make retrieval easier",
        low=2,
    )
    layer: int = _retrieval_key(-1, _VECTOR_LAYER, low=-1)
    changed: tuple[str, ...] = _retrieval_key(
        (),
        "changed English sentences, for xsim++ into English: numbers (the numbers of the English "
        "sentences are changed), or files with one sentence per line (docs/retrieve.md). Not for "
        "held_out",
    )


_similarity_key = partial(key, used_when=only_if_set("evaluation.sts.source"))


@dataclasses.dataclass(frozen=True)
class SimilarityEvaluation(Section, path="evaluation.sts"):
    """Semantic textual similarity (STS) during training: the correlations that `xlj.score --gold`
    prints, with cosines of mean vectors."""

    source: tuple[str, ...] = key(
        (),
        "templates of files with {language}: sentence pairs with gold scores (docs/score.md). For "
        "each language, the first file that exists is read. Empty: similarity is not evaluated",
    )
    languages: tuple[str, ...] = _similarity_key((), "languages to evaluate; empty: data.languages")
    sentences: int = _similarity_key(500, "maximum number of sentence pairs per language", low=2)
    layer: int = _similarity_key(-1, _VECTOR_LAYER, low=-1)


_search_key = partial(key, used_when=only_if_set("evaluation.search.source"))


@dataclasses.dataclass(frozen=True)
class SearchEvaluation(Section, path="evaluation.search"):
    """Search with judged queries during training: the nDCG, MRR and recall that `xlj.search`
    prints, with cosines of mean vectors and without prompts."""

    source: tuple[str, ...] = key(
        (),
        "templates of folders with {language}: search sets in BEIR's or MIRACL's form "
        "(docs/search.md). For each language, the first folder that exists is read. Each "
        "evaluation embeds all documents. Empty: search is not evaluated",
    )
    languages: tuple[str, ...] = _search_key((), "languages to evaluate; empty: data.languages")
    split: str = _search_key("test", "split of the judgements")
    queries: int = _search_key(500, "maximum number of queries per language", low=1)
    layer: int = _search_key(-1, _VECTOR_LAYER, low=-1)


_alignment_key = partial(key, used_when=only_if_set("evaluation.alignment.source"))


def _for_agreement(config: "Sections", path: str) -> Unused | None:
    """Checks that an objective reads sentence pairs."""
    if "data.parallel" in config.row_sources():
        return None
    return Unused("no objective that is on reads sentence pairs", allowed_in_recipes=True)


def _for_alignment(config: "Sections", path: str) -> Unused | None:
    """Checks that alignment is evaluated."""
    options = config.evaluation.alignment
    if options.source or options.agreement:
        return None
    return Unused("evaluation.alignment.source is empty and evaluation.alignment.agreement is off")


@dataclasses.dataclass(frozen=True)
class AlignmentEvaluation(AlignmentOptions, Section, path="evaluation.alignment"):
    """Word alignment during training: the alignment error rate that `xlj.align` prints, and the
    agreement of both directions.

    Checkpoints store these options. `xlj.align` uses the stored options by default.
    """

    source: tuple[str, ...] = key(
        (),
        "templates of gold files with {pair}, or with {source} and {target}: TSV with links in the "
        "third column, or a TSV and a file of links joined by '|' (docs/align.md). For each "
        "language pair, the first file that exists is read. Empty: no alignment error rate",
    )
    pairs: tuple[str, ...] = _alignment_key((), "language pairs of source; empty: data.pairs")
    agreement: bool = key(
        False,
        "measure the agreement of both directions at each layer, on held-out pairs of "
        "data.parallel. If layer is -1, checkpoints store the layer with the highest agreement",
        used_when=_for_agreement,
    )
    sentences: int = key(
        200,
        "maximum number of sentence pairs per language pair",
        low=1,
        used_when=_for_alignment,
    )


@dataclasses.dataclass(frozen=True)
class Evaluation(Section, path="evaluation"):
    """Metrics every `train.eval_every` steps, in addition to the losses on held-out rows."""

    perplexity: bool = key(
        False, "report exp(loss) for held-out losses that predict tokens, also by language"
    )
    retrieval: RetrievalEvaluation = RetrievalEvaluation()
    sts: SimilarityEvaluation = SimilarityEvaluation()
    search: SearchEvaluation = SearchEvaluation()
    alignment: AlignmentEvaluation = AlignmentEvaluation()


@dataclasses.dataclass(frozen=True)
class Mesh(Section, path="mesh"):
    replica: int = key(
        0,
        "number of copies of the parameters (data-parallel groups); 0: the number of devices "
        "divided by mesh.fsdp",
        low=0,
    )
    fsdp: int = key(
        1, "number of devices across which each copy of the parameters is sharded", low=1
    )
    gather: str = key(
        "layer",
        "when devices gather sharded parameters. layer: layer by layer in each pass of each "
        "microbatch (least memory); step: once per step (least communication)",
        choices=("layer", "step"),
    )


MATCHING_RULES = ("exact", "normalised", "dictionary", "accents", "place")
"""The names that `transfer.rules` may contain, in the order of its default."""

_matched_key = partial(key, used_when=only_with("transfer.vocabulary", "matched"))


@dataclasses.dataclass(frozen=True)
class Transfer(Section, path="transfer"):
    """The parts of `init_from` that a run loads (MetaXLM, section 3.2 and Table 5)."""

    model: str = key(
        "config",
        "where the sizes and options of the model come from. config: the section `model`, which "
        "must agree with init_from. init_from: the model that init_from names; of the section "
        f"`model` the run then reads only {', '.join(KEYS_OF_RUN)}",
        choices=("config", "init_from"),
        used_when=only_if_set("init_from"),
    )
    parts: tuple[str, ...] = key(
        ("body", "embeddings"),
        "parts to load: body (the layers), embeddings; other parameters are initialised randomly. "
        "Empty in fine-tuning: no part, a baseline without pretraining",
        used_when=only_if_set("init_from"),
    )
    vocabulary: str = key(
        "same",
        "same: the run uses the vocabulary of init_from; matched: the run uses another vocabulary, "
        "and the vector of each piece starts from the vector of a piece of init_from with the same "
        "text",
        choices=("same", "matched"),
        used_when=only_if_set("init_from"),
    )
    optimizer: bool = key(
        False,
        "also load the optimizer's moments from init_from, a training checkpoint with the same "
        "parameters; the learning rate schedule restarts",
        used_when=only_if_set("init_from"),
    )
    dictionaries: tuple[str, ...] = _matched_key(
        (),
        "bilingual dictionaries: templates with {pair}, or files whose names contain the pair. The "
        "vector of a word may then also start from the vector of its translation (MetaXLM+Dict)",
    )
    rules: tuple[str, ...] = _matched_key(
        MATCHING_RULES,
        "rules that match a piece to a piece of init_from, in order; the first that finds a piece "
        "decides. exact: the same text; normalised: the same text in NFKC and case folded; "
        "dictionary: the translation of the word (MetaXLM+Dict has this rule first); accents: as "
        "normalised, without accents; place: the same text, even if only one of the two pieces "
        "starts a word",
    )
    language: str = _matched_key(
        "en", "language of init_from, which is the target language of the dictionaries"
    )
    unmatched: str = _matched_key(
        "random",
        "initial vectors of unmatched pieces. random: normal with standard deviation init_std; "
        "mean: the mean vector of init_from; sampled: normal with the mean and the variance of the "
        "vectors of init_from",
        choices=("random", "mean", "sampled"),
    )


class Sections(Protocol):
    """The part of a config that `used_when` conditions and an objective's `check` may read.
    `schema.Config` implements this protocol."""

    @property
    def data(self) -> Data: ...
    @property
    def model(self) -> Model: ...
    @property
    def train(self) -> Train: ...
    @property
    def evaluation(self) -> Evaluation: ...

    def row_kinds(self) -> tuple[str, ...]:
        """Returns the kinds of rows that the run reads, xlj's first."""

    def row_sources(self) -> Collection[str]:
        """Returns the keys of the text from which the run's rows are packed."""

    def objectives_on(self) -> Mapping[str, Any]:
        """Returns the options of the objectives that are on in any phase, by name."""

    def readers(self, path: str) -> Collection[str]:
        """Returns the objectives, on or off, that read this key of the model."""
