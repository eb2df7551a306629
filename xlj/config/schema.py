"""The typed schema that every config is checked against.

A config file returns an `ml_collections.ConfigDict` that starts from `default()`, so every key can
be set in the file or on the command line. `xlj.config.checks` turns it once into the frozen
`Config` below.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import ml_collections

from xlj.config import fields
from xlj.config.fields import ConfigError, Idle, Reading, key, only_if_set, only_with
from xlj.config.objectives import Options, registered
from xlj.config.objectives.options import import_modules, module_digests, read_by_objectives
from xlj.config.rows import ROW_KINDS


def _of_text(read: Reading | None = None) -> Reading:
    """Says that a key is read where text is, and by itself as `read` says."""

    def of_text(config: Config, path: str) -> Idle | None:
        if config.data.rows:
            return Idle("data.rows names finished rows, so no text is read", recipes_may=True)
        return read(config, path) if read else None

    return of_text


_NO_VOCABULARY_IS_TRAINED = "data.vocabulary names a vocabulary, so none is trained"


def _for_training_a_vocabulary(config: Config, path: str) -> Idle | None:
    """Says that a key is read where a vocabulary is trained."""
    return Idle(_NO_VOCABULARY_IS_TRAINED, recipes_may=True) if config.data.vocabulary else None


def _for_text(config: Config, path: str) -> Idle | None:
    """Says that a source of text is read for rows, or for a vocabulary."""
    if not config.data.vocabulary or path in {ROW_KINDS[k].source for k in config.row_kinds()}:
        return None
    reason = f"no objective that is on reads {path}, and {_NO_VOCABULARY_IS_TRAINED}"
    return Idle(reason, recipes_may=True)


def _for_rows(config: Config, path: str) -> Idle | None:
    """Says that a length is read where there are rows of it."""
    if path in {ROW_KINDS[kind].length for kind in config.row_kinds()}:
        return None
    return Idle(f"no objective that is on reads rows of {path}", recipes_may=True)


def _for_seqio(config: Config, path: str) -> Idle | None:
    """Says that modules are imported where a source is a seqio Task."""
    if any(text.startswith("seqio:") for text in config.data.mono + config.data.parallel):
        return None
    return Idle("data.mono and data.parallel name no seqio: source")


@dataclasses.dataclass(frozen=True)
class Data:
    rows: str = key(
        "",
        "folder of finished rows (built by xlj.prepare); empty: the rows of the text below, built "
        "if need be",
    )
    languages: tuple[str, ...] = key(
        (),
        "languages of the monolingual text, e.g. en,de,sw",
        read=_of_text(only_if_set("data.mono")),
    )
    mono: tuple[str, ...] = key(
        (),
        "templates of monolingual sources with {language}: files (.txt .gz .xz .zst), "
        "phrasebook:{language}, tfds:NAME#FIELD or seqio:TASK#FIELD",
        read=_of_text(_for_text),
    )
    pairs: tuple[str, ...] = key(
        (),
        "language pairs of the parallel text, e.g. en-de,en-sw",
        read=_of_text(only_if_set("data.parallel")),
    )
    parallel: tuple[str, ...] = key(
        (),
        "templates of parallel sources with {pair}, or {source} and {target}: TSV files, two "
        "line-aligned files joined by '|', phrasebook:{pair}, tfds:NAME#FIELD|FIELD, "
        "seqio:TASK#FIELD|FIELD",
        read=_of_text(_for_text),
    )
    seqio_modules: tuple[str, ...] = key(
        (), "modules to import that register seqio Tasks", read=_of_text(_for_seqio)
    )
    cache: str = key(
        "runs/rows", "folder where vocabularies and rows live, one folder a recipe", read=_of_text()
    )
    alpha: float = key(0.7, "exponent of language sampling, p_j = m_j^a / sum m_k^a", low=0, high=1)
    vocabulary: str = key("", "SentencePiece model or tokenizer.json; empty means train one")
    vocabulary_size: int = key(
        250_002,
        "ids of a vocabulary that is trained, specials and <mask> included",
        low=64,
        read=_of_text(_for_training_a_vocabulary),
    )
    vocabulary_type: str = key(
        "unigram",
        "how a vocabulary that is trained cuts words",
        choices=("unigram", "bpe"),
        read=_of_text(_for_training_a_vocabulary),
    )
    vocabulary_alpha: float = key(
        0.3,
        "exponent of the sample that the vocabulary is trained on",
        low=0,
        high=1,
        read=_of_text(_for_training_a_vocabulary),
    )
    vocabulary_lines: int = key(
        5_000_000,
        "most lines that the vocabulary is trained on",
        low=1000,
        read=_of_text(_for_training_a_vocabulary),
    )
    vocabulary_coverage: float = key(
        0.9995,
        "share of characters that the vocabulary covers",
        low=0.9,
        high=1,
        read=_of_text(_for_training_a_vocabulary),
    )
    length: int = key(512, "tokens in a row of monolingual text", low=8, read=_of_text(_for_rows))
    pair_length: int = key(
        512, "tokens in a row of sentence pairs", low=8, read=_of_text(_for_rows)
    )
    held_out_lines: int = key(
        1000,
        "lines of each language, about, held out of training for evaluation",
        low=0,
        read=_of_text(),
    )
    invalid_utf8: str = key(
        "error",
        "what a line that is not UTF-8 does: stop, or be skipped and counted",
        choices=("error", "skip"),
        read=_of_text(),
    )
    workers: int = key(0, "processes that build rows; 0 means one a core", low=0, read=_of_text())


def _for_predicted_languages(config: Config, path: str) -> Idle | None:
    """Says that "predicted" is read by the objectives that predict tokens of a language."""
    if config.model.language_embeddings != "predicted":
        return None
    return read_by_objectives(config, path)


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
        read=only_with("model.position_bias", "t5", "gated"),
    )
    position_distance: int = key(
        128,
        "distance from which on all share a bucket",
        low=2,
        read=only_with("model.position_bias", "t5", "gated"),
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
        read=_for_predicted_languages,
    )
    generator_layers: int = key(
        4, "layers of the generator, as wide as the model", low=1, read=read_by_objectives
    )
    generator_embeddings: str = key(
        "shared",
        "the generator's embeddings: shared, shared but trained by the generator only, or its own",
        choices=("shared", "generator_only", "separate"),
        read=read_by_objectives,
    )


@dataclasses.dataclass(frozen=True)
class Objectives:
    """The objectives of a run, or of a phase of it."""

    normalisation: str = key(
        "per_objective",
        "per_objective: sum of weight * mean of each (ELECTRA, XLM-E); "
        "global: weighted sums over everything predicted (XLM-Align)",
        choices=("per_objective", "global"),
    )
    options: Mapping[str, Options] = fields.sections(registered)
    """The options of each by name, in the order in which they were registered."""

    def active(self) -> dict[str, Options]:
        """The options of the objectives that are on, by name."""
        return {name: options for name, options in self.options.items() if options.batch_rows}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["options"][name]
        except KeyError:
            raise AttributeError(f"there is no objective {name}") from None


MOST_STEPS = 2**31 - 1
"""Steps are counted in int32 on the devices."""

FREEZABLE = {
    "embeddings": ("embeddings",),
    "layers": ("layers", "position_bias", "final_norm"),
}
"""The names that `optimizer.frozen` may have, and the parts of the encoder that they mean."""


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
        0, "steps of the final decay", low=0, read=only_with("optimizer.schedule", "wsd")
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


def _for_retrieval(config: Config, path: str) -> Idle | None:
    """Says that a key is read where a source is named, and there are pairs to hold out."""
    source = config.evaluation.retrieval.source
    if not source:
        return None if path.endswith(".source") else Idle("evaluation.retrieval.source is empty")
    if HELD_OUT not in source or "data.parallel" in {
        ROW_KINDS[kind].source for kind in config.row_kinds()
    }:
        return None
    reason = "no objective that is on reads sentence pairs, so none are held out"
    return Idle(reason, recipes_may=True)


@dataclasses.dataclass(frozen=True)
class RetrievalEvaluation:
    """Accuracy@1 of `xlj.retrieve`, cosines of means."""

    source: tuple[str, ...] = key(
        (),
        "held_out: the held-out pairs of data.parallel; or templates of files with {pair}, or "
        "{source} and {target}: TSV, or two line-aligned files joined by '|'; the first that is "
        "there is a pair's; empty: no retrieval",
        read=_for_retrieval,
    )
    pairs: tuple[str, ...] = key(
        (), "language pairs to look at; empty means data.pairs", read=_for_retrieval
    )
    sentences: int = key(
        200,
        "most sentence pairs of each; fewer are easier to tell apart",
        low=2,
        read=_for_retrieval,
    )
    layer: int = key(
        0,
        "layer of the sentence vectors; 0 means two thirds of the layers",
        low=0,
        read=_for_retrieval,
    )


_for_alignment = only_if_set("evaluation.alignment.source")


@dataclasses.dataclass(frozen=True)
class AlignmentEvaluation:
    """Alignment error rate of `xlj.align`, by optimal transport."""

    source: tuple[str, ...] = key(
        (),
        "templates of gold files with {pair}, or {source} and {target}: TSV whose third column is "
        "links, or a TSV and a file of links joined by '|' (docs/align.md); the first that is "
        "there is a pair's; empty: no alignment",
    )
    pairs: tuple[str, ...] = key(
        (), "language pairs to look at; empty means data.pairs", read=_for_alignment
    )
    sentences: int = key(200, "most sentence pairs of each", low=1, read=_for_alignment)
    layer: int = key(
        0,
        "layer whose vectors are aligned; 0 means two thirds of the layers",
        low=0,
        read=_for_alignment,
    )


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Measures every `train.eval_every` steps beside the losses on held-out rows."""

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
    """Parts that a run takes from `init_from` (MetaXLM, section 3.2 and Table 5)."""

    parts: tuple[str, ...] = key(
        ("body", "embeddings"),
        "what is taken: body (the layers), embeddings; the rest is drawn",
        read=only_if_set("init_from"),
    )
    vocabulary: str = key(
        "same",
        "same: the run has the vocabulary of init_from. matched: it has its own, whose pieces "
        "start from those of the same word",
        choices=("same", "matched"),
        read=only_if_set("init_from"),
    )
    dictionaries: tuple[str, ...] = key(
        (),
        "templates of bilingual dictionaries with {pair}, or files whose names say the pair; then "
        "pieces also start from their word's translation (MetaXLM+Dict)",
        read=only_with("transfer.vocabulary", "matched"),
    )
    dictionaries_first: bool = key(
        False,
        "look for a word's translation before the word itself, as MetaXLM+Dict does; else only for "
        "words that no piece of init_from equals, but for case",
        read=only_if_set("transfer.dictionaries"),
    )
    accents: bool = key(
        True,
        "pieces that match nothing also start from the same word without accents",
        read=only_with("transfer.vocabulary", "matched"),
    )
    place: bool = key(
        True,
        "and, last, from the same text where only one of the two starts a word",
        read=only_with("transfer.vocabulary", "matched"),
    )
    language: str = key(
        "en",
        "the language of init_from, into which the dictionaries translate",
        read=only_with("transfer.vocabulary", "matched"),
    )
    unmatched: str = key(
        "random",
        "what other pieces start from: N(0, init_std), the mean of all of init_from's, or N(mean, "
        "variance) of those",
        choices=("random", "mean", "sampled"),
        read=only_with("transfer.vocabulary", "matched"),
    )


class Phase(NamedTuple):
    """A phase of a run."""

    start: int
    """Its first step."""
    config: Config
    """The whole config from then on."""


@dataclasses.dataclass(frozen=True)
class Config:
    """All that a run reads. `phases` maps a name to {start_step, and the keys of `data.alpha` and
    `objectives.*` that change from that step on}; each phase builds on the one before."""

    init_from: str = key(
        "", "workdir, checkpoint or Hugging Face folder whose parameters the run starts from"
    )
    objective_modules: tuple[str, ...] = key(
        (), "modules to import that register objectives (docs/objectives.md)"
    )
    transfer: Transfer = Transfer()
    data: Data = Data()
    model: Model = Model()
    objectives: Objectives = Objectives()
    optimizer: Optimizer = Optimizer()
    train: Train = Train()
    evaluation: Evaluation = Evaluation()
    mesh: Mesh = Mesh()
    phases: Mapping[str, Any] = dataclasses.field(
        default_factory=dict,
        metadata={"doc": "changes by step: {name: {start_step: N, data: {alpha: A}, ...}}"},
    )

    @functools.cached_property
    def schedule(self) -> tuple[Phase, ...]:
        """The phases of the run, in order of steps; the first begins at step 0.

        Raises:
          ConfigError: on a phase that changes what a phase may not, or nothing, or that starts
            where another does.
        """
        return _schedule(self)

    @functools.cached_property
    def objectives_by_phase(self) -> tuple[Mapping[str, Options], ...]:
        """The options of the objectives that are on in each phase, by name."""
        return tuple(phase.config.objectives.active() for phase in self.schedule)

    def objectives_on(self) -> dict[str, Options]:
        """The objectives that are on in any phase, in the schema's order, each with the options of
        the first phase that has it."""
        first: dict[str, Options] = {}
        for active in reversed(self.objectives_by_phase):
            first |= active
        return {name: first[name] for name in self.objectives.options if name in first}

    def row_kinds(self) -> tuple[str, ...]:
        """The kinds of rows that the run reads, in the order of `ROW_KINDS`."""
        read = {options.rows for options in self.objectives_on().values()}
        return tuple(kind for kind in ROW_KINDS if kind in read)


def _schedule(config: Config) -> tuple[Phase, ...]:
    for name, changes in config.phases.items():
        if type(changes.get("start_step")) is not int:
            raise ConfigError(
                f"phases.{name}.start_step is {changes.get('start_step')!r}; it must be a step"
            )
        if not all(isinstance(changes.get(part, {}), Mapping) for part in ("data", "objectives")):
            raise ConfigError(f"phases.{name}: data and objectives must be sections of keys")
    phases = [Phase(0, config)]
    order = sorted(config.phases.items(), key=lambda item: item[1]["start_step"])
    for name, changes in order:
        path, before = f"phases.{name}", phases[-1]
        changes = dict(changes)
        start = changes.pop("start_step")
        if not before.start < start < config.train.steps:
            raise ConfigError(
                f"{path}.start_step is {start!r}; it must be a step after {before.start}, where "
                f"the phase before starts, and before train.steps={config.train.steps}"
            )
        if set(changes) - {"data", "objectives"} or set(changes.get("data", {})) - {"alpha"}:
            raise ConfigError(f"{path} may change data.alpha and objectives.* only, not {changes}")
        tree = fields.merge(fields.as_tree(before.config), changes, path)
        phases.append(Phase(start, build(tree)))
        if phases[-1].config == before.config:
            raise ConfigError(f"{path} changes nothing of the phase before it")
    return tuple(phases)


def default(objective_modules: str = "") -> ml_collections.ConfigDict:
    """A ConfigDict with every key of the schema at its default, locked against other keys.

    Args:
      objective_modules: modules that register objectives of your own, separated by commas; their
        keys are then there too.

    Raises:
      ConfigError: if one cannot be imported.
    """
    import_modules(objective_modules)
    config = fields.default_of(Config)
    config.objective_modules = objective_modules
    return config


def keys() -> Iterator[tuple[str, dataclasses.Field]]:
    """(full path, field) of every key of the schema, in order."""
    yield from fields.keys_of(Config)


def build(tree: Mapping[str, Any]) -> Config:
    """The `Config` of nested dicts; its types are checked, what its values mean together is not.

    Raises:
      ConfigError: on an unknown key, a wrong type or a value out of its range.
    """
    return fields.build(Config, tree, [name for name, _ in keys()])


def record(config: Config) -> dict[str, Any]:
    """The config as runs and checkpoints keep it: JSON values, and the sha256 of the modules that
    its objectives come from."""
    tree = json.loads(json.dumps(fields.as_tree(config)))
    digests = module_digests(config.objective_modules)
    return tree | ({"objective_digests": digests} if digests else {})
