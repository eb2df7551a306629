"""The sections of a pretraining config, and when each of their keys is read."""

import dataclasses
import math
import re
from collections.abc import Collection
from functools import partial
from typing import Protocol

from xlj.config.choices import AlignmentOptions
from xlj.config.fields import (
    ConfigError,
    Section,
    Unused,
    UsedWhen,
    key,
    lookup,
    only_if_set,
    only_with,
)
from xlj.config.optimizers import read_by_optimizer, registered_optimizers
from xlj.config.row_kinds import ROW_KINDS


def _of_text(used_when: UsedWhen | None = None) -> UsedWhen:
    """Says that a key is read where text is, and by itself as `read` says."""

    def of_text(config: "Sections", path: str) -> Unused | None:
        if config.data.rows:
            return Unused(
                "data.rows names finished rows, so no text is read", allowed_in_recipes=True
            )
        return used_when(config, path) if used_when else None

    return of_text


_NO_VOCABULARY_IS_TRAINED = "data.vocabulary names a vocabulary, so none is trained"


def _for_cache(config: "Sections", path: str) -> Unused | None:
    """Says that the cache is read for text, or where `data.rows` is a hash."""
    if not config.data.rows or config.data.rows_are_hashed:
        return None
    return Unused("data.rows names finished rows by their folder", allowed_in_recipes=True)


def _for_training_a_vocabulary(config: "Sections", path: str) -> Unused | None:
    return (
        Unused(_NO_VOCABULARY_IS_TRAINED, allowed_in_recipes=True)
        if config.data.vocabulary
        else None
    )


def _for_text(config: "Sections", path: str) -> Unused | None:
    """Says that a source of text is read for rows, or for a vocabulary."""
    if not config.data.vocabulary or path in {ROW_KINDS[k].source for k in config.row_kinds()}:
        return None
    reason = f"no objective that is on reads {path}, and {_NO_VOCABULARY_IS_TRAINED}"
    return Unused(reason, allowed_in_recipes=True)


def _for_rows(config: "Sections", path: str) -> Unused | None:
    if path in {ROW_KINDS[kind].length for kind in config.row_kinds()}:
        return None
    return Unused(f"no objective that is on reads rows of {path}", allowed_in_recipes=True)


def _for_seqio(config: "Sections", path: str) -> Unused | None:
    if any(text.startswith("seqio:") for text in config.data.mono + config.data.parallel):
        return None
    return Unused("data.mono and data.parallel name no seqio: source")


_text_key = partial(key, used_when=_of_text())
_vocabulary_key = partial(key, used_when=_of_text(_for_training_a_vocabulary))


@dataclasses.dataclass(frozen=True)
class Data(Section, path="data"):
    rows: str = key(
        "",
        "finished rows (built by xlj.prepare): their folder, or its hash in data.cache; empty: the "
        "rows of the text below, built if need be",
    )
    languages: tuple[str, ...] = key(
        (),
        "languages of the monolingual text, e.g. en,de,sw",
        used_when=_of_text(only_if_set("data.mono")),
    )
    mono: tuple[str, ...] = key(
        (),
        "templates of monolingual sources with {language}, and * where several files match: text, "
        "here or at a URL, "
        "FILE.jsonl#FIELD, FILE.parquet#FIELD (.gz .xz .zst too), phrasebook:{language}, "
        "tfds:NAME#FIELD or seqio:TASK#FIELD",
        used_when=_of_text(_for_text),
    )
    pairs: tuple[str, ...] = key(
        (),
        "language pairs of the parallel text, e.g. en-de,en-sw",
        used_when=_of_text(only_if_set("data.parallel")),
    )
    parallel: tuple[str, ...] = key(
        (),
        "templates of parallel sources with {pair}, or {source} and {target}: TSV files, two "
        "line-aligned files joined by '|', FILE.jsonl#FIELD|FIELD, FILE.parquet#FIELD|FIELD, "
        "phrasebook:{pair}, tfds:NAME#FIELD|FIELD, seqio:TASK#FIELD|FIELD",
        used_when=_of_text(_for_text),
    )
    seqio_modules: tuple[str, ...] = key(
        (), "modules to import that register seqio Tasks", used_when=_of_text(_for_seqio)
    )
    cache: str = key(
        "runs/rows", "folder, or gs:// or s3:// URL, of vocabularies and rows", used_when=_for_cache
    )
    alpha: float = key(0.7, "exponent of language sampling, p_j = m_j^a / sum m_k^a", low=0, high=1)
    sampled: tuple[str, ...] = key(
        (),
        "languages and pairs that rows are drawn of, such as en,de,en-de; of text all, if no "
        "language is named, and of pairs all, if none is. en=3 draws en three times as often as "
        "alpha says, relative to the others. A phase may name others",
    )
    vocabulary: str = key(
        "",
        "SentencePiece model or tokenizer.json; empty means that of init_from or a teacher, or "
        "else train one",
    )
    vocabulary_size: int = _vocabulary_key(
        250_002,
        "ids of a vocabulary that is trained, specials and <mask> included; 0 means 6,000 and "
        "1,000 for each language",
        low=0,
    )
    vocabulary_type: str = _vocabulary_key(
        "unigram", "how a vocabulary that is trained cuts words", choices=("unigram", "bpe")
    )
    vocabulary_lowercase: bool = _vocabulary_key(
        False, "whether a vocabulary that is trained folds case: it has no capitals"
    )
    vocabulary_alpha: float = _vocabulary_key(
        0.3, "exponent of the sample that the vocabulary is trained on", low=0, high=1
    )
    vocabulary_lines: int = _vocabulary_key(
        5_000_000, "most lines that the vocabulary is trained on", low=1000
    )
    vocabulary_coverage: float = _vocabulary_key(
        0.9995, "share of characters that the vocabulary covers", low=0.9, high=1
    )
    length: int = key(
        512, "tokens in a row of monolingual text", low=8, used_when=_of_text(_for_rows)
    )
    pair_length: int = key(
        512,
        "tokens in a row of sentence pairs; auto: as many as keep 99 % of the pairs of each "
        "source, within model.positions. Longer pairs are dropped, and counted",
        low=8,
        auto=True,
        used_when=_of_text(_for_rows),
    )
    held_out_share: float = _text_key(
        0.02,
        "share of the lines of each language held out of training for evaluation",
        low=0,
        high=0.2,
    )
    exclude: tuple[str, ...] = _text_key(
        (),
        "files of evaluations, as in data.mono: lines and pairs with a line of theirs are left out",
    )
    filter: str = _text_key(
        "", "module:function of your own, a line -> whether to keep it; of pairs both sides"
    )
    duplicates: str = _text_key(
        "keep",
        "what becomes of a line of text, or a pair, that stands before in its language or pair",
        choices=("keep", "drop"),
    )
    unit_bytes: int = _text_key(
        32 << 20, "bytes of input that a process takes at a time; rows depend on it", low=1 << 10
    )
    malformed: str = _text_key(
        "error",
        "what a malformed record does (invalid UTF-8, a wrong number of columns, a blank line or "
        "side, a line too long, broken JSON): stop, or be skipped and counted",
        choices=("error", "skip"),
    )
    malformed_share: float = key(
        0.001,
        "the largest share of malformed records of a language or pair that is skipped, looked at "
        "from 10,000 records on",
        low=0,
        high=1,
        used_when=_of_text(only_with("data.malformed", "skip")),
    )
    damaged_rows: str = key(
        "stop",
        "what a row does whose checksum is wrong: stop the run, or leave its slot empty (pad)",
        choices=("stop", "pad"),
    )
    workers: int = _text_key(0, "processes that build rows; 0 means one a core", low=0)

    @property
    def shares(self) -> dict[str, float]:
        """The factor of each name in `sampled`, 1 if it has none.

        Raises:
          ConfigError: if a factor is not a number above 0.
        """
        shares = {}
        for entry in self.sampled:
            name, _, factor = entry.partition("=")
            try:
                shares[name] = float(factor) if "=" in entry else 1.0
            except ValueError:
                shares[name] = math.nan
            if not 0 < shares[name] < math.inf:
                raise ConfigError(f"data.sampled: {entry!r} must be NAME or NAME=FACTOR, above 0")
        return shares

    @property
    def rows_are_hashed(self) -> bool:
        """Whether `rows` is the hash of a store, not its folder."""
        return re.fullmatch("[0-9a-f]{16}", self.rows) is not None

    @property
    def rows_folder(self) -> str:
        """The folder of the rows that `rows` names, or its URL."""
        return f"{self.cache.rstrip('/')}/{self.rows}" if self.rows_are_hashed else self.rows


def read_by_objectives(config: "Sections", path: str) -> Unused | None:
    """Says that a key of the model is read by objectives whose `reads` name it."""
    readers = config.readers(path)
    if set(readers) & set(config.objectives_on()):
        return None
    return Unused(f"{' and '.join(readers)} are off")


def _for_predicted_languages(config: "Sections", path: str) -> Unused | None:
    """Says that "predicted" is read by the objectives that predict tokens of a language."""
    if config.model.language_embeddings != "predicted":
        return None
    return read_by_objectives(config, path)


def _for_positions(config: "Sections", path: str) -> Unused | None:
    """Says that a key is read where a model has absolute or rotary positions."""
    if config.model.absolute_positions or config.model.rotary_base:
        return None
    return Unused("model.absolute_positions is off, and model.rotary_base is 0")


def _where(path: str, why: str) -> UsedWhen:
    """Says that a key of a family is read where the key at `path` is not 0."""

    def read(config: "Sections", _: str) -> Unused | None:
        return None if lookup(config, path) else Unused(why, allowed_in_recipes=True)

    read.__doc__ = f"only if `{path}` is not 0"
    return read


def _for_pre_norm(config: "Sections", path: str) -> Unused | None:
    """Says that a key is read where norms stand before sub-layers."""
    if config.model.norm != "post":
        return None
    return Unused("model.norm=post has no norm at the end")


_for_local_layers = _where("model.local_attention", "model.local_attention is 0")


def _for_rotary_local_layers(config: "Sections", path: str) -> Unused | None:
    """Says that a key of a family is read where local layers have rotary positions."""
    return _for_local_layers(config, path) or _for_rotary(config, path)


_for_rotary = _where("model.rotary_base", "model.rotary_base is 0")
_for_dropout = _where("model.dropout", "model.dropout is 0")

FAMILIES = ("xlm_r", "modernbert", "eurobert", "gte")
"""The families of `model.family`; `families` has their options."""

BIASES = ("attention", "output", "inner", "outer", "prediction", "vocabulary")
"""The names that `model.biases` may have."""

DROPOUT_PARTS = ("embeddings", "attention", "feed_forward")
"""The names that `model.dropout_parts` may have."""

_distance_key = partial(key, used_when=only_with("model.position_bias", "t5", "gated"))


@dataclasses.dataclass(frozen=True)
class Model(Section, path="model"):
    family: str = key(
        "xlm_r",
        "whose options the model has; set by hand, it sets all of them, before other keys that are "
        "set by hand, and in a recipe `families.set_family` does: xlm_r, modernbert (mmBERT, "
        "Ettin), eurobert or gte",
        choices=FAMILIES,
    )
    layers: int = key(12, "transformer layers", low=1)
    hidden: int = key(768, "width of the hidden vectors", low=1)
    heads: int = key(12, "attention heads", low=1)
    key_value_heads: int = key(
        0, "heads of keys and values, each for as many heads of queries; 0: one for each", low=0
    )
    local_attention: int = key(
        0,
        "width of the window that tokens see in local layers: half of it to each side; 0: no layer "
        "is local",
        low=0,
    )
    full_attention_every: int = key(
        3,
        "layers 0, n, 2 n ... see the whole example, the others are local",
        low=1,
        used_when=_for_local_layers,
    )
    full_layers: tuple[str, ...] = key(
        (),
        "numbers of the layers, from 0, that see the whole example, in the place of every n-th",
        used_when=_for_local_layers,
    )
    intermediate: int = key(3072, "width inside the feed-forward layers", low=1)
    feed_forward: str = key(
        "gelu",
        "the feed-forward layer: GELU (XLM-R), or gated by GELU (ModernBERT, gte) or by SiLU "
        "(EuroBERT)",
        choices=("gelu", "geglu", "swiglu"),
    )
    biases: tuple[str, ...] = key(
        BIASES,
        "which linear layers have a bias: attention (query, key, value), its output, the feed-"
        "forward layer's inner and outer one, and the prediction head's own and its vocabulary",
    )
    positions: int = key(514, "rows of the position table; XLM-R's first position is row 2", low=3)
    absolute_positions: bool = key(
        True, "add a learned vector for each position; if not, positions only limits the rows"
    )
    rotary_base: float = key(
        0.0, "base of the wave lengths of rotary positions; 0: no rotary positions", low=0
    )
    rotary_local_base: float = key(
        0.0,
        "that of local layers; 0: as in full layers",
        low=0,
        used_when=_for_rotary_local_layers,
    )
    rotary_factor: float = key(
        1.0,
        "what rotary positions are divided by",
        low=1e-6,
        used_when=_for_rotary,
    )
    token_types: int = key(
        0, "rows of a table whose first is added to every token (BERT, RoBERTa); 0: none", low=0
    )
    pair_token_types: bool = key(
        False, "the second sentence of a pair adds the second row of that table (BERT)"
    )
    pair_positions: str = key(
        "running",
        "how positions count in a pair: on into its second sentence (XLM-R, and all since), or "
        "from 0 again there (XLM)",
        choices=("running", "restart"),
        used_when=_for_positions,
    )
    pair_separator: str = key(
        "end",
        "the token that is read between the two sentences of a pair: `</s>`, the end of the first "
        "(all but EuroBERT), or the vocabulary's own for parallel sentences, `<|parallel_sep|>`",
        choices=("end", "parallel"),
    )
    position_bias: str = key(
        "none",
        "what attention adds for the distance of two tokens: nothing, a learned number a head "
        "(T5), or that gated by the query (XLM-E)",
        choices=("none", "t5", "gated"),
    )
    position_buckets: int = _distance_key(
        32, "buckets of distances, half of them for each direction", low=4
    )
    position_distance: int = _distance_key(128, "distance from which on all share a bucket", low=2)
    dropout: float = key(
        0.1, "dropout of embeddings and of every sub-layer's output", low=0, high=0.9
    )
    dropout_parts: tuple[str, ...] = key(
        DROPOUT_PARTS,
        "what dropout is applied to: the embeddings, and the outputs of attention and of the "
        "feed-forward layers",
        used_when=_for_dropout,
    )
    attention_dropout: float = key(0.1, "dropout of attention probabilities", low=0, high=0.9)
    attention: str = key(
        "auto",
        "how attention is computed: with the scores of all pairs in memory, or fused in a kernel "
        "(GPUs from Ampere on, TPUs; a CPU interprets it, slowly); auto is dense on CPUs alone",
        choices=("auto", "dense", "fused"),
    )
    norm: str = key(
        "post",
        "where norms stand: after each sub-layer and the embeddings (XLM-R), before each sub-layer "
        "and once at the end (XLM-R XL), or so but the first behind the embeddings (ModernBERT)",
        choices=("post", "pre", "embeddings"),
    )
    norm_type: str = key(
        "layer",
        "LayerNorm, LayerNorm without bias (ModernBERT), or RMSNorm (EuroBERT)",
        choices=("layer", "unbiased", "rms"),
    )
    middle_norm: bool = key(
        False,
        "vectors of layers before the last, for alignment or retrieval, pass through the last "
        "norm too",
        used_when=_for_pre_norm,
    )
    layer_norm_epsilon: float = key(1e-5, "epsilon of every norm", low=0)
    prediction: str = key(
        "dense",
        "the head of masked tokens: a layer of its own before the vocabulary, or the vocabulary "
        "alone (EuroBERT)",
        choices=("dense", "linear"),
    )
    tied: bool = key(True, "that head multiplies by the word embeddings, not by a table of its own")
    init_std: float = key(0.02, "standard deviation of initial weights", low=0)
    dtype: str = key(
        "float32",
        "type that matrix products compute in, and of what lies between them; parameters, the "
        "residual stream, norms and reductions are float32. auto: float32 on CPUs, bfloat16 on "
        "GPUs and TPUs, decided when a run begins",
        choices=("auto", "float32", "bfloat16"),
    )
    scan_layers: bool = key(True, "compile one layer and loop, or all of them unrolled")
    remat: str = key(
        "none",
        "what the backward pass computes again, to save memory: nothing to speak of, all of a "
        "layer but its products and its attention, or all of it",
        choices=("none", "products", "all"),
    )
    language_embeddings: str = key(
        "none",
        "a vector of each token's language: none, where a token is to be predicted from another "
        "language (CAMLM's selected tokens, BTMLM's placeholders), or everywhere",
        choices=("none", "predicted", "all"),
        used_when=_for_predicted_languages,
    )

    @property
    def groups(self) -> int:
        """How many heads of keys and values there are."""
        return self.key_value_heads or self.heads

    @property
    def has_own_head(self) -> bool:
        """Whether the head for masked tokens has parameters of its own."""
        return self.prediction == "dense" or not self.tied or "vocabulary" in self.biases

    def dropout_of(self, part: str) -> float:
        """The dropout behind one of `DROPOUT_PARTS`."""
        return self.dropout if part in self.dropout_parts else 0.0


MOST_STEPS = 2**31 - 1
"""Steps are counted in int32 on the devices."""

_duration_key = partial(key, low=0, high=MOST_STEPS, duration=True)

FREEZABLE = {
    "embeddings": ("embeddings",),
    "layers": ("layers", "position_bias", "final_norm"),
}
"""The names that `optimizer.frozen` may have, and the parts of the encoder that they mean."""


@dataclasses.dataclass(frozen=True)
class Optimizer(Section, path="optimizer"):
    name: str = key(
        "adamw",
        "the optimizer (docs/train.md adds one)",
        choices=registered_optimizers(),
    )
    learning_rate: float = key(1e-4, "peak learning rate", low=0)
    schedule: str = key(
        "linear",
        "after the warm-up: a decay to floor by the end of the run, linear, cosine or sqrt (1 - "
        "sqrt of its elapsed share); constant; or wsd (constant, then a decay over decay_steps). "
        "The checkpoint before a decay is kept",
        choices=("linear", "cosine", "sqrt", "constant", "wsd"),
    )
    warmup_steps: int = _duration_key(0, "duration of the linear warm-up")
    decay_steps: int = _duration_key(
        0, "duration of the final decay", used_when=only_with("optimizer.schedule", "wsd")
    )
    decay: str = key(
        "linear",
        "the form of the final decay",
        choices=("linear", "cosine", "sqrt"),
        used_when=only_with("optimizer.schedule", "wsd"),
    )
    floor: float = key(
        0.0,
        "the learning rate at the end of a decay, as a share of the peak",
        low=0,
        high=1,
        used_when=only_with("optimizer.schedule", "linear", "cosine", "sqrt", "wsd"),
    )
    b1: float = key(0.9, "AdamW's beta 1", low=0, high=0.999999, used_when=read_by_optimizer)
    b2: float = key(0.999, "AdamW's beta 2", low=0, high=0.999999, used_when=read_by_optimizer)
    epsilon: float = key(1e-6, "AdamW's epsilon", low=1e-30, used_when=read_by_optimizer)
    momentum: float = key(
        0.95,
        "of Muon: the decay of a kernel's average gradient; other parameters have AdamW's betas",
        low=0,
        high=0.999999,
        used_when=read_by_optimizer,
    )
    weight_decay: float = key(
        0.01, "decoupled decay; of biases and norms only where decay_multipliers says so", low=0
    )
    decoupling: str = key(
        "partly",
        "what weight_decay is multiplied by in a step: partly: the learning rate (AdamW in PyTorch "
        "and optax); fully: the learning rate divided by its peak (ModernBERT, mmBERT)",
        choices=("partly", "fully"),
        used_when=only_if_set("optimizer.weight_decay"),
    )
    clip_norm: float = key(0.0, "largest global norm of the gradient; 0 means no clipping", low=0)
    average: float = key(
        0.0,
        "decay of a moving average of the parameters, such as 0.999, which checkpoints hold beside "
        "them (DIR/average names it); 0: none",
        low=0,
        high=0.999999,
    )
    layer_decay: float = key(
        1.0,
        "factor of the learning rate from each layer to the one below it: heads have the peak, the "
        "last layer this times it, the embeddings this to the power of layers + 1 (ERNIE-M: 0.8)",
        low=0,
        high=1,
    )
    frozen: tuple[str, ...] = key(
        (), "parts that stay as they are: embeddings, layers (with position bias and final norm)"
    )
    rate_multipliers: tuple[str, ...] = key(
        (),
        "factors of the learning rate, REGEX=FACTOR: a parameter has that of the first REGEX which "
        "matches its whole name, such as layers/attention/query/kernel; 0 freezes it",
    )
    decay_multipliers: tuple[str, ...] = key(
        (),
        "likewise of the weight decay; .*=1 decays biases and norms too",
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
        "duration of the run: steps of the optimizer, or real tokens (3e9tok), or passes over the "
        "rows (2ep)",
        low=1,
    )
    fewest_steps: int = key(
        1,
        "the fewest steps of a run whose train.steps are tokens or passes",
        low=1,
        high=MOST_STEPS,
        used_when=_for_duration,
    )
    batch_warmup: int = _duration_key(
        0,
        "duration over which batches grow from first_microbatches to all, a microbatch at a time; "
        "it ends before the first phase begins; 0: all batches are whole",
    )
    first_microbatches: int = key(
        1,
        "microbatches of the first step, of train.accumulation",
        low=1,
        used_when=only_if_set("train.batch_warmup"),
    )
    seed: int = key(0, "seed of initial weights, batches, masks and dropout", low=0, high=2**32 - 1)
    log_every: int = key(100, "steps between lines of training metrics", low=1)
    eval_every: int = key(5_000, "steps between evaluations on held-out text", low=1)
    eval_rows: int = key(64, "most held-out rows of each language or pair in an evaluation", low=0)
    checkpoint_every: int = key(5_000, "steps between checkpoints", low=1)
    keep_checkpoints: int = key(2, "latest checkpoints to keep (a pre-decay one stays too)", low=1)
    damaged_checkpoint: str = key(
        "stop",
        "what a run does on resume whose latest checkpoint is damaged: stop, or put it aside and "
        "go on from the one before; all of a checkpoint is then read before any work",
        choices=("stop", "before"),
    )
    allow_change: tuple[str, ...] = key(
        (),
        "keys that a run may change on resume, although its result follows from them: "
        "optimizer.learning_rate,model.dropout",
    )
    accumulation: int = key(1, "microbatches that a step's rows are split into", low=1)
    max_skipped_steps: int = key(
        20, "steps in a row with a non-finite loss or gradient before the run stops", low=0
    )
    metrics_hook: str = key(
        "",
        "module:function of your own, called with the step and a dict of values by name for each "
        "line of metrics: W&B, MLflow",
    )


HELD_OUT = "held_out"
"""As a source of retrieval: the run's own held-out sentence pairs."""


def _for_retrieval(config: "Sections", path: str) -> Unused | None:
    """Says that a key is read where a source is named, and there are pairs to hold out."""
    source = config.evaluation.retrieval.source
    if not source:
        return None if path.endswith(".source") else Unused("evaluation.retrieval.source is empty")
    if HELD_OUT not in source or "data.parallel" in {
        ROW_KINDS[kind].source for kind in config.row_kinds()
    }:
        return None
    reason = "no objective that is on reads sentence pairs, so none are held out"
    return Unused(reason, allowed_in_recipes=True)


_retrieval_key = partial(key, used_when=_for_retrieval)


@dataclasses.dataclass(frozen=True)
class RetrievalEvaluation(Section, path="evaluation.retrieval"):
    """Accuracy@1 of `xlj.retrieve`, cosines of means."""

    source: tuple[str, ...] = _retrieval_key(
        (),
        "held_out: the held-out pairs of data.parallel; or templates of files with {pair}, or "
        "{source} and {target}: TSV, or two line-aligned files joined by '|'; the first that is "
        "there is a pair's; empty: no retrieval",
    )
    pairs: tuple[str, ...] = _retrieval_key((), "language pairs to look at; empty means data.pairs")
    sentences: int = _retrieval_key(
        200, "most sentence pairs of each; fewer are easier to tell apart", low=2
    )
    layer: int = _retrieval_key(
        -1,
        "layer of the sentence vectors, 0 is the embeddings; -1 means two thirds of the layers",
        low=-1,
    )


_alignment_key = partial(key, used_when=only_if_set("evaluation.alignment.source"))


@dataclasses.dataclass(frozen=True)
class AlignmentEvaluation(AlignmentOptions, Section, path="evaluation.alignment"):
    """Alignment error rate of `xlj.align`. How words are linked is kept in the checkpoint, and what
    `xlj.align` does with it unless told otherwise."""

    source: tuple[str, ...] = key(
        (),
        "templates of gold files with {pair}, or {source} and {target}: TSV whose third column is "
        "links, or a TSV and a file of links joined by '|' (docs/align.md); the first that is "
        "there is a pair's; empty: no alignment",
    )
    pairs: tuple[str, ...] = _alignment_key((), "language pairs to look at; empty means data.pairs")
    sentences: int = _alignment_key(200, "most sentence pairs of each", low=1)


@dataclasses.dataclass(frozen=True)
class Evaluation(Section, path="evaluation"):
    """Measures every `train.eval_every` steps beside the losses on held-out rows."""

    perplexity: bool = key(
        False, "exp of each held-out loss whose predictions are tokens, by language too"
    )
    retrieval: RetrievalEvaluation = RetrievalEvaluation()
    alignment: AlignmentEvaluation = AlignmentEvaluation()


@dataclasses.dataclass(frozen=True)
class Mesh(Section, path="mesh"):
    replica: int = key(
        0, "devices along which the parameters are copied; 0 means all / mesh.fsdp", low=0
    )
    fsdp: int = key(1, "devices along which the parameters are sharded", low=1)
    gather: str = key(
        "layer",
        "when a device gathers the parameters: layer by layer, in each pass of each microbatch "
        "(least memory), or once a step (least sent)",
        choices=("layer", "step"),
    )


_matched_key = partial(key, used_when=only_with("transfer.vocabulary", "matched"))


@dataclasses.dataclass(frozen=True)
class Transfer(Section, path="transfer"):
    """Parts that a run takes from `init_from` (MetaXLM, section 3.2 and Table 5)."""

    parts: tuple[str, ...] = key(
        ("body", "embeddings"),
        "what is taken: body (the layers), embeddings; the rest is drawn",
        used_when=only_if_set("init_from"),
    )
    vocabulary: str = key(
        "same",
        "same: the run has the vocabulary of init_from. matched: it has its own, whose pieces "
        "start from those of the same word",
        choices=("same", "matched"),
        used_when=only_if_set("init_from"),
    )
    optimizer: bool = key(
        False,
        "also take the optimizer's moments from init_from, a checkpoint of training with the same "
        "parameters; the schedule begins anew",
        used_when=only_if_set("init_from"),
    )
    dictionaries: tuple[str, ...] = _matched_key(
        (),
        "templates of bilingual dictionaries with {pair}, or files whose names say the pair; then "
        "pieces also start from their word's translation (MetaXLM+Dict)",
    )
    dictionaries_first: bool = key(
        False,
        "look for a word's translation before the word itself, as MetaXLM+Dict does; else only for "
        "words that no piece of init_from equals, but for case",
        used_when=only_if_set("transfer.dictionaries"),
    )
    accents: bool = _matched_key(
        True, "pieces that match nothing also start from the same word without accents"
    )
    place: bool = _matched_key(
        True, "and, last, from the same text where only one of the two starts a word"
    )
    language: str = _matched_key(
        "en", "the language of init_from, into which the dictionaries translate"
    )
    unmatched: str = _matched_key(
        "random",
        "what other pieces start from: N(0, init_std), the mean of all of init_from's, or N(mean, "
        "variance) of those",
        choices=("random", "mean", "sampled"),
    )


class Sections(Protocol):
    """The sections that keys of several sections depend on, and what the objectives read: a config
    as a key's `read` and an objective's `check` see it. `schema.Config` is one."""

    @property
    def data(self) -> Data: ...
    @property
    def model(self) -> Model: ...
    @property
    def train(self) -> Train: ...
    @property
    def evaluation(self) -> Evaluation: ...

    def row_kinds(self) -> tuple[str, ...]:
        """The kinds of rows that the run reads, in the order of `ROW_KINDS`."""

    def objectives_on(self) -> Collection[str]:
        """The objectives that are on in any phase, in the schema's order."""

    def readers(self, path: str) -> Collection[str]:
        """The objectives, on or off, that read this key of the model."""
