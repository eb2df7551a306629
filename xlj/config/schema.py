"""The typed schema that every config is checked against.

A config file returns an `ml_collections.ConfigDict` that starts from `default()`, so every key can
be set in the file or on the command line. `xlj.config.checks` turns it once into the frozen
`Config` below.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import ml_collections

from xlj.config import fields as keys_of_schema
from xlj.config.fields import ConfigError, key


@dataclasses.dataclass(frozen=True)
class Data:
    languages: tuple[str, ...] = key((), "languages of the monolingual text, e.g. en,de,sw")
    mono: tuple[str, ...] = key(
        (),
        "templates of monolingual sources with {language}: files (.txt .gz .xz .zst), "
        "phrasebook:{language}, tfds:NAME#FIELD or seqio:TASK#FIELD",
    )
    pairs: tuple[str, ...] = key((), "language pairs of the parallel text, e.g. en-de,en-sw")
    parallel: tuple[str, ...] = key(
        (),
        "templates of parallel sources with {pair}, or {source} and {target}: TSV files, two "
        "line-aligned files joined by '|', phrasebook:{pair}, tfds:NAME#FIELD|FIELD, "
        "seqio:TASK#FIELD|FIELD",
    )
    seqio_modules: tuple[str, ...] = key((), "modules to import that register seqio Tasks")
    cache: str = key("runs/rows", "folder where vocabularies and rows live, one folder a recipe")
    alpha: float = key(0.7, "exponent of language sampling, p_j = m_j^a / sum m_k^a", low=0, high=1)
    vocabulary: str = key("", "SentencePiece model or tokenizer.json; empty means train one")
    vocabulary_size: int = key(
        250_002, "ids of a vocabulary that is trained, specials and <mask> included", low=64
    )
    vocabulary_type: str = key(
        "unigram", "how a vocabulary that is trained cuts words", choices=("unigram", "bpe")
    )
    vocabulary_alpha: float = key(
        0.3, "exponent of the sample that the vocabulary is trained on", low=0, high=1
    )
    vocabulary_lines: int = key(5_000_000, "most lines that the vocabulary is trained on", low=1000)
    vocabulary_coverage: float = key(
        0.9995, "share of characters that the vocabulary covers", low=0.9, high=1
    )
    length: int = key(512, "tokens in a row of monolingual text", low=8)
    pair_length: int = key(512, "tokens in a row of sentence pairs", low=8)
    held_out_lines: int = key(
        1000, "lines of each language, about, held out of training for evaluation", low=0
    )
    invalid_utf8: str = key(
        "error",
        "what a line that is not UTF-8 does: stop, or be skipped and counted",
        choices=("error", "skip"),
    )
    workers: int = key(0, "processes that make rows; 0 means one a core", low=0)


@dataclasses.dataclass(frozen=True)
class Model:
    layers: int = key(12, "transformer layers", low=1)
    hidden: int = key(768, "width of the hidden vectors", low=1)
    heads: int = key(12, "attention heads", low=1)
    intermediate: int = key(3072, "width inside the feed-forward layers", low=1)
    positions: int = key(514, "rows of the position table; XLM-R's first position is row 2", low=3)
    absolute_positions: bool = key(
        True, "add a learned vector for each position; if not, positions only limits the rows"
    )
    token_types: int = key(
        0, "rows of a table whose first is added to every token (BERT, RoBERTa); 0: none", low=0
    )
    pair_token_types: bool = key(
        False, "the second sentence of a pair adds the second row of that table (BERT)"
    )
    position_bias: str = key(
        "none",
        "what attention adds for the distance of two tokens: nothing, a learned number a head "
        "(T5), or that gated by the query (XLM-E)",
        choices=("none", "t5", "gated"),
    )
    position_buckets: int = key(
        32,
        "buckets of distances, half of them for each direction",
        low=4,
        read_when=("model.position_bias", ("t5", "gated")),
    )
    position_distance: int = key(
        128,
        "distance from which on all share a bucket",
        low=2,
        read_when=("model.position_bias", ("t5", "gated")),
    )
    dropout: float = key(
        0.1, "dropout of embeddings and of every sub-layer's output", low=0, high=0.9
    )
    attention_dropout: float = key(0.1, "dropout of attention probabilities", low=0, high=0.9)
    norm: str = key(
        "post",
        "where LayerNorm stands: after each sub-layer and the embeddings (XLM-R), or before each "
        "sub-layer and once at the end (XLM-R XL)",
        choices=("post", "pre"),
    )
    layer_norm_epsilon: float = key(1e-5, "epsilon of every LayerNorm", low=0)
    init_std: float = key(0.02, "standard deviation of initial weights", low=0)
    dtype: str = key(
        "float32",
        "type that matrix products compute in; parameters and reductions are float32",
        choices=("float32", "bfloat16"),
    )
    scan_layers: bool = key(True, "compile one layer and loop, or all of them unrolled")
    remat: bool = key(False, "recompute each layer in the backward pass, to save memory")
    language_embeddings: str = key(
        "none",
        "a vector of each token's language: none, where a token is to be predicted from another "
        "language (CAMLM's selected tokens, BTMLM's placeholders), or everywhere",
        choices=("none", "predicted", "all"),
    )
    generator_layers: int = key(
        4, "layers of the generator, as wide as the model", low=1, read_by=("mrtd", "trtd")
    )
    generator_embeddings: str = key(
        "shared",
        "the generator's embeddings: shared, shared but trained by the generator only, or its own",
        choices=("shared", "generator_only", "separate"),
        read_by=("mrtd", "trtd"),
    )


@dataclasses.dataclass(frozen=True)
class MaskedLanguageModelling:
    """MMLM, TLM, CAMLM; and what the objectives that mask tokens have in common."""

    batch_rows: int = key(0, "rows a step; 0 turns the objective off", low=0)
    weight: float = key(1.0, "weight of the objective in the loss", low=0)
    mask_rate: float = key(0.15, "share of tokens to predict", low=0, high=0.9)
    mask_share: float = key(0.8, "share of predicted tokens replaced by <mask>", low=0, high=1)
    random_share: float = key(
        0.1, "share of predicted tokens replaced by a random one", low=0, high=1
    )


@dataclasses.dataclass(frozen=True)
class BackTranslation(MaskedLanguageModelling):
    """BTMLM."""

    pseudo_ratio: float = key(
        0.1, "pseudo-tokens generated for each token of the source sentence", low=0.01, high=0.2
    )
    target_alpha: float = key(
        0.0,
        "exponent that the target language is drawn with, p_j ~ m_j^a over the other languages; "
        "0 means uniformly",
        low=0,
        high=1,
    )
    generation: str = key(
        "argmax",
        "the most likely pseudo-token, or one drawn from the softmax",
        choices=("argmax", "sample"),
    )


@dataclasses.dataclass(frozen=True)
class ReplacedTokenDetection(MaskedLanguageModelling):
    """MRTD, TRTD. The weight is that of the discriminator, XLM-E's lambda."""

    weight: float = key(50.0, "weight of the discriminator's loss, lambda", low=0)
    generator_weight: float = key(1.0, "weight of the generator's loss", low=0)
    temperature: float = key(1.0, "temperature of the generator's samples", low=0.01)


@dataclasses.dataclass(frozen=True)
class WordAlignment(MaskedLanguageModelling):
    """XLM-Align: TLM, and denoising word alignment (DWA) in the same forward pass."""

    alignment_weight: float = key(1.0, "weight of the word alignment loss", low=0)
    label_layer: int = key(
        0, "layer whose vectors label the alignments; 0 means two thirds of the layers", low=0
    )
    query_layer: int = key(0, "layer that the pointer network reads; 0 means the last", low=0)
    filtering: bool = key(
        True, "label by iterative filtering (itermax); else by the union of both argmaxes"
    )
    sinkhorn_iterations: int = key(2, "iterations of Sinkhorn's algorithm", low=1)
    queries: str = key(
        "masked",
        "labelled tokens that are pointed from: masked, unmasked, all of them ('aligned'), or none",
        choices=("masked", "unmasked", "aligned", "none"),
    )


@dataclasses.dataclass(frozen=True)
class Contrast(MaskedLanguageModelling):
    """InfoXLM's XLCO. Inputs are masked, nothing of them is predicted."""

    layer: int = key(0, "layer of the contrasted vectors; 0 means two thirds of the layers", low=0)
    temperature: float = key(0.25, "temperature of the softmax", low=0.001)
    queue: int = key(131_072, "keys of earlier steps that are contrasted with", low=1)
    momentum: float = key(0.9999, "momentum of the key encoder", low=0, high=1)
    mixup: bool = key(True, "join each pair with another pair of the batch (mixup contrast)")


@dataclasses.dataclass(frozen=True)
class Retrieval:
    """Translations told apart from other sentences of the batch; ERNIE-M's with the defaults."""

    batch_rows: int = key(0, "rows a step, one pair each; 0 turns the objective off", low=0)
    weight: float = key(1.0, "weight of the objective in the loss", low=0)
    negatives: str = key(
        "hardest",
        "what a translation is told apart from: the most similar other sentence of its side of "
        "the batch, by binary cross-entropy; or all others of both sides, by a softmax",
        choices=("hardest", "all"),
    )
    layer: int = key(
        0, "layer of the averaged sentence vectors; 0 means two thirds of the layers", low=0
    )
    scale: float = key(20.0, "what cosines are multiplied by to be logits", low=0.01)


@dataclasses.dataclass(frozen=True)
class Distillation:
    """MetaXLM's baseline (Table 3): vectors of a monolingual teacher, on its language's rows."""

    batch_rows: int = key(0, "rows a step; 0 turns the objective off", low=0)
    weight: float = key(1.0, "weight of the objective in the loss", low=0)
    teacher: str = key("", "checkpoint, or workdir, of the teacher: same sizes, same vocabulary")
    language: str = key("en", "the teacher's language; rows of others are left out")


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of rows: the key that names its text, and the key of its length."""

    source: str
    length: str


KINDS = {
    "text": Kind("data.mono", "data.length"),
    "sentences": Kind("data.mono", "data.length"),
    "pairs": Kind("data.parallel", "data.pair_length"),
    "bitext": Kind("data.parallel", "data.pair_length"),
}
"""Kinds of rows (docs/data.md): running text; single sentences with room for pseudo-tokens;
sentence pairs read together; sentence pairs read apart."""

ROW_KINDS = {
    "mmlm": "text",
    "tlm": "pairs",
    "camlm": "pairs",
    "btmlm": "sentences",
    "mrtd": "text",
    "trtd": "pairs",
    "dwa": "pairs",
    "xlco": "bitext",
    "retrieval": "bitext",
    "distillation": "text",
}
"""The kind of rows that each objective reads."""

LABELLED = ("classification", "pair_classification", "tagging", "question_answering")
"""The objectives of fine-tuning; each reads a kind of rows of its own, of the same name."""


def row_kind(objective: str) -> str:
    """The kind of rows that an objective reads."""
    return ROW_KINDS.get(objective, objective)


@dataclasses.dataclass(frozen=True)
class Objectives:
    normalisation: str = key(
        "per_objective",
        "per_objective: sum of weight * mean of each (ELECTRA, XLM-E); "
        "global: weighted sums over everything predicted (XLM-Align)",
        choices=("per_objective", "global"),
    )
    mmlm: MaskedLanguageModelling = MaskedLanguageModelling()
    tlm: MaskedLanguageModelling = MaskedLanguageModelling()
    camlm: MaskedLanguageModelling = MaskedLanguageModelling()
    btmlm: BackTranslation = BackTranslation()
    mrtd: ReplacedTokenDetection = ReplacedTokenDetection()
    trtd: ReplacedTokenDetection = ReplacedTokenDetection()
    dwa: WordAlignment = WordAlignment()
    xlco: Contrast = Contrast()
    retrieval: Retrieval = Retrieval()
    distillation: Distillation = Distillation()

    def active(self) -> dict[str, Any]:
        """The options of the objectives that are on, by name."""
        options = {name: getattr(self, name) for name in ROW_KINDS}
        return {name: option for name, option in options.items() if option.batch_rows}


@dataclasses.dataclass(frozen=True)
class Supervised:
    """The one objective of a fine-tuning run, in the place of `Objectives`.

    Attributes:
      kind: one of LABELLED.
      batch_rows: rows a step.
      length: tokens in a row; its labels come behind them.
      labels: names of classes or tags; of answers there are none.
    """

    kind: str
    batch_rows: int
    length: int
    labels: tuple[str, ...] = ()
    weight: float = 1.0
    normalisation: str = "per_objective"

    def active(self) -> dict[str, Any]:
        """Itself, by its name."""
        return {self.kind: self}


MOST_STEPS = 2**31 - 1
"""Steps are counted in int32 on the devices."""

FREEZABLE = {
    "embeddings": ("embeddings",),
    "layers": ("layers", "position_bias", "final_norm"),
}
"""What `optimizer.frozen` may name, and the parts of the encoder that it means."""


@dataclasses.dataclass(frozen=True)
class Optimizer:
    learning_rate: float = key(1e-4, "peak learning rate of AdamW", low=0)
    schedule: str = key(
        "linear",
        "after the warm-up: linear decay to 0, constant, or wsd (constant, then linear decay to 0 "
        "over decay_steps; the checkpoint before the decay is kept)",
        choices=("linear", "constant", "wsd"),
    )
    warmup_steps: int = key(0, "steps of linear warm-up", low=0, high=MOST_STEPS)
    decay_steps: int = key(
        0, "steps of the final decay", low=0, read_when=("optimizer.schedule", ("wsd",))
    )
    b1: float = key(0.9, "AdamW's beta 1", low=0, high=1)
    b2: float = key(0.999, "AdamW's beta 2", low=0, high=1)
    epsilon: float = key(1e-6, "AdamW's epsilon", low=0)
    weight_decay: float = key(0.01, "decoupled decay; never of biases and norms", low=0)
    clip_norm: float = key(0.0, "largest global norm of the gradient; 0 means no clipping", low=0)
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


@dataclasses.dataclass(frozen=True)
class Train:
    steps: int = key(100_000, "optimizer steps of the run", low=1, high=MOST_STEPS)
    seed: int = key(0, "seed of initial weights, batches, masks and dropout", low=0, high=2**32 - 1)
    log_every: int = key(100, "steps between lines of training metrics", low=1)
    eval_every: int = key(5_000, "steps between evaluations on held-out text", low=1)
    eval_rows: int = key(64, "most held-out rows of each language or pair in an evaluation", low=0)
    checkpoint_every: int = key(5_000, "steps between checkpoints", low=1)
    keep_checkpoints: int = key(2, "latest checkpoints to keep (a pre-decay one stays too)", low=1)
    accumulation: int = key(1, "microbatches that a step's rows are split into", low=1)
    max_skipped_steps: int = key(
        20, "steps in a row with a non-finite loss or gradient before the run stops", low=0
    )


HELD_OUT = "held_out"
"""As a source of retrieval: the run's own held-out sentence pairs."""


@dataclasses.dataclass(frozen=True)
class RetrievalEvaluation:
    """Accuracy@1 of `xlj.retrieve`, cosines of means."""

    source: tuple[str, ...] = key(
        (),
        "held_out: the held-out pairs of data.parallel; or templates of files with {pair}, or "
        "{source} and {target}: TSV, or two line-aligned files joined by '|'; the first that is "
        "there is a pair's; empty: no retrieval",
    )
    pairs: tuple[str, ...] = key((), "language pairs to look at; empty means data.pairs")
    sentences: int = key(200, "most sentence pairs of each; fewer are easier to tell apart", low=2)
    layer: int = key(0, "layer of the sentence vectors; 0 means two thirds of the layers", low=0)


@dataclasses.dataclass(frozen=True)
class AlignmentEvaluation:
    """Alignment error rate of `xlj.align`, by optimal transport."""

    source: tuple[str, ...] = key(
        (),
        "templates of gold files with {pair}, or {source} and {target}: TSV whose third column is "
        "links, or a TSV and a file of links joined by '|' (docs/align.md); the first that is "
        "there is a pair's; empty: no alignment",
    )
    pairs: tuple[str, ...] = key((), "language pairs to look at; empty means data.pairs")
    sentences: int = key(200, "most sentence pairs of each", low=1)
    layer: int = key(0, "layer whose vectors are aligned; 0 means two thirds of the layers", low=0)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What is measured every `train.eval_every` steps beside the losses on held-out rows."""

    perplexity: bool = key(
        False, "exp of each held-out loss whose predictions are tokens, by language too"
    )
    retrieval: RetrievalEvaluation = RetrievalEvaluation()
    alignment: AlignmentEvaluation = AlignmentEvaluation()


@dataclasses.dataclass(frozen=True)
class Mesh:
    replica: int = key(
        0, "devices along which the parameters are copied; 0 means all / mesh.fsdp", low=0
    )
    fsdp: int = key(1, "devices along which the parameters are sharded", low=1)


@dataclasses.dataclass(frozen=True)
class Transfer:
    """What a run takes from `init_from` (MetaXLM, section 3.2 and Table 5)."""

    parts: tuple[str, ...] = key(
        ("body", "embeddings"), "what is taken: body (the layers), embeddings; the rest is drawn"
    )
    vocabulary: str = key(
        "same",
        "same: the run has the vocabulary of init_from. matched: it has its own, whose pieces "
        "start from those of the same word",
        choices=("same", "matched"),
    )
    dictionaries: tuple[str, ...] = key(
        (),
        "templates of bilingual dictionaries with {pair}, or files whose names say the pair; then "
        "pieces also start from their word's translation (MetaXLM+Dict)",
        read_when=("transfer.vocabulary", ("matched",)),
    )
    language: str = key(
        "en",
        "the language of init_from, into which the dictionaries translate",
        read_when=("transfer.vocabulary", ("matched",)),
    )
    unmatched: str = key(
        "random",
        "what other pieces start from: N(0, init_std), the mean of all of init_from's, or N(mean, "
        "variance) of those",
        choices=("random", "mean", "sampled"),
        read_when=("transfer.vocabulary", ("matched",)),
    )


@dataclasses.dataclass(frozen=True)
class Config:
    """All that a run reads. `phases` maps a name to {start_step, and the keys of `data.alpha` and
    `objectives.*` that change from that step on}; each phase builds on the one before."""

    init_from: str = key(
        "", "workdir, checkpoint or Hugging Face folder whose parameters the run starts from"
    )
    transfer: Transfer = Transfer()
    data: Data = Data()
    model: Model = Model()
    objectives: Objectives | Supervised = Objectives()
    optimizer: Optimizer = Optimizer()
    train: Train = Train()
    evaluation: Evaluation = Evaluation()
    mesh: Mesh = Mesh()
    phases: Mapping[str, Any] = dataclasses.field(
        default_factory=dict,
        metadata={"doc": "changes by step: {name: {start_step: N, data: {alpha: A}, ...}}"},
    )


def default() -> ml_collections.ConfigDict:
    """A ConfigDict with every key of the schema at its default, locked against other keys."""
    return keys_of_schema.default_of(Config)


def phase_configs(config: Config) -> list[tuple[int, Config]]:
    """The phases of a run: (first step, the whole config from then on), in order of steps.

    Raises:
      ConfigError: on a phase that changes what a phase may not, or nothing, or that starts where
        another does.
    """
    phases = [(0, config)]
    for name, changes in config.phases.items():
        if type(changes.get("start_step")) is not int:
            raise ConfigError(
                f"phases.{name}.start_step is {changes.get('start_step')!r}; it must be a step"
            )
        if not all(isinstance(changes.get(part, {}), Mapping) for part in ("data", "objectives")):
            raise ConfigError(f"phases.{name}: data and objectives must be sections of keys")
    order = sorted(config.phases.items(), key=lambda item: item[1]["start_step"])
    for name, changes in order:
        path = f"phases.{name}"
        changes = dict(changes)
        start = changes.pop("start_step")
        if not phases[-1][0] < start < config.train.steps:
            raise ConfigError(
                f"{path}.start_step is {start!r}; it must be a step after {phases[-1][0]}, where "
                f"the phase before starts, and before train.steps={config.train.steps}"
            )
        if set(changes) - {"data", "objectives"} or set(changes.get("data", {})) - {"alpha"}:
            raise ConfigError(f"{path} may change data.alpha and objectives.* only, not {changes}")
        tree = dataclasses.asdict(phases[-1][1])
        phases.append((start, build(keys_of_schema.merge(tree, changes, path))))
        if phases[-1][1] == phases[-2][1]:
            raise ConfigError(f"{path} changes nothing of the phase before it")
    return phases


def objectives_in(config: Config) -> tuple[str, ...]:
    """Names of the objectives that are on in any phase, in the schema's order."""
    phases = [phase.objectives.active() for _, phase in phase_configs(config)]
    names = (*ROW_KINDS, *LABELLED)
    return tuple(name for name in names if any(name in active for active in phases))


def kinds_in(config: Config) -> tuple[str, ...]:
    """The kinds of rows that a run reads, in the order of `KINDS`."""
    read = {ROW_KINDS[name] for name in objectives_in(config)}
    return tuple(kind for kind in KINDS if kind in read)


def keys() -> Iterator[tuple[str, dataclasses.Field]]:
    """(full path, field) of every key of the schema, in order."""
    yield from keys_of_schema.keys_of(Config)


def build(tree: Mapping[str, Any]) -> Config:
    """The `Config` of nested dicts; its types are checked, what its values mean together is not.

    Raises:
      ConfigError: on an unknown key, a wrong type or a value out of its range.
    """
    return keys_of_schema.build(Config, tree, [name for name, _ in keys()])
