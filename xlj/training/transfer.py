"""Transfer of parameters from another model to a run (MetaXLM, section 3.2 and Table 5)."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from tqdm import tqdm

from xlj.checkpoints.reading import Checkpoint, CheckpointError
from xlj.checkpoints.stored_models import StoredModel
from xlj.config import Config, ConfigError, Optimizer, Transfer, as_tree
from xlj.data.rows.store import RowStore
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import vocabulary_matching
from xlj.interop.vocabulary_matching import Dictionary, Matches, match, share_table
from xlj.objectives.supervised.head import head_of
from xlj.objectives.supervised.options import SUPERVISED, recorded_kind, supervised_in
from xlj.sharding.trees import Params, named_leaves

_BY_WORD = ("embeddings/word", "prediction_head/bias", "prediction_head/word")
"""Parameters with one row per piece of the vocabulary."""

_EMBEDDINGS = ("embeddings/", "prediction_head/bias", "prediction_head/word")
"""Parameters that Table 5 of MetaXLM calls "embeddings". In the paper, the "body" is the layers,
and the prediction head without `bias` and `word`. The paper does not assign other parameters, such
as a position bias. Here they belong to the body."""

_CORE = ("embeddings/word", "embeddings/position", "embeddings/token_type", "embeddings/norm/",
         "layers/", "position_bias/", "final_norm/")  # fmt: skip
"""Parameters that both models must have in the same shapes. Heads and language embeddings may
differ, since they depend on objectives."""

_ROWS = 2000  # number of rows of each language whose tokens the report counts


def transfer_parameters(
    config: Config,
    source: StoredModel,
    params: Params,
    fresh: Params,
    languages: Sequence[str],
    matches: Matches | None = None,
) -> Params:
    """Replaces new parameters by parameters of another model.

    Process 0 prints the names of the parameters that stay new, and of those that are not used. If
    the other model is fine-tuned with other labels, its task head is not used.

    Args:
      source: the other model.
      params: the other model's parameters.
      fresh: the run's new parameters, on their devices.
      languages: of the run.
      matches: for each piece of the run's vocabulary, the matching pieces of the other model's
        vocabulary; None if the vocabularies are the same.

    Raises:
      CheckpointError: if the encoders have different architectures.
    """
    old, new = named_leaves(params), named_leaves(fresh)
    if source.languages != tuple(languages):
        old.pop("embeddings/language", None)  # its rows belong to other languages
    if matches is not None:
        for name in _BY_WORD:
            if name in old and name in new:
                old[name] = _match_rows(old[name], new[name], matches, config)
    record = as_tree(config)
    labels = supervised_in(record).get("labels", ())
    kinds = {*SUPERVISED, recorded_kind(record)} - {""}  # tasks whose heads depend on labels
    unused_heads = (
        tuple(f"{head_of(kind)}/" for kind in kinds) if source.labels != tuple(labels) else ()
    )
    heads = {head_of(kind) for kind in kinds} if config.model.task_head == "gelu_norm" else set()
    shared = _share_head(old, new, heads)
    fits = {
        name
        for name in old
        if name in new and old[name].shape == new[name].shape and not name.startswith(unused_heads)
    }
    old |= shared
    fits |= shared.keys()
    missing = [name for name in new if name not in fits]
    unused = [name for name in old if name not in fits]
    mismatched = [name for name in missing + unused if name.startswith(_CORE)]
    if mismatched:
        raise CheckpointError(
            f"init_from={source.folder} has another architecture than the config: these parameters "
            f"are missing or have another shape: {', '.join(mismatched[:4])}; set "
            "transfer.model=init_from to use the sizes of init_from"
        )
    parts = {n: "embeddings" if n.startswith(_EMBEDDINGS) else "body" for n in fits}
    excluded = {name for name, part in parts.items() if part not in config.transfer.parts}
    for names, what in (
        (missing, "newly initialised"),
        (unused, "not used"),
        (sorted(excluded), f"newly initialised (transfer.parts={','.join(config.transfer.parts)})"),
    ):
        if names and jax.process_index() == 0:
            tqdm.write(f"init_from: {what}: {', '.join(names)}")
    leaves, structure = jax.tree.flatten(fresh)
    chosen = [
        jax.device_put(old[name], leaf.sharding) if name in fits - excluded else leaf
        for name, leaf in zip(new, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, chosen)


def _share_head(
    old: dict[str, jax.Array], new: Mapping[str, jax.Array], heads: Collection[str]
) -> dict[str, jax.Array]:
    """Takes the layers of a task head out of another model's head for masked tokens.

    Task heads of ModernBERT have the layers of this head (`model.task_head`), and transformers
    starts them from it.

    Args:
      old: the other model's parameters by name; those that are taken are removed.
      new: the run's new parameters by name.
      heads: the names of task heads with these layers.

    Returns:
      The parameters that the other model's task heads lack, under their names in the run.
    """
    originals = {
        f"{head}/{layer}/{part}": f"prediction_head/{layer}/{part}"
        for head in heads
        for layer in ("dense", "norm")
        for part in ("kernel", "scale", "bias")
    }
    shared = {
        name: jax.device_put(old.pop(original), new[name].sharding)
        for name, original in originals.items()
        if name in new and name not in old and original in old
    }
    if shared and jax.process_index() == 0:
        tqdm.write(f"init_from: from the head for masked tokens: {', '.join(shared)}")
    return shared


def check_optimizer(source: StoredModel, config: Config) -> Checkpoint:
    """Checks that a model has moments of the run's optimizer, and returns the model's checkpoint.

    The check compares `optimizer.name`. Names of tensors would not be enough, since the moments of
    AdamW and StableAdamW have the same names.

    Raises:
      CheckpointError: if the checkpoint has no moments, or the moments of another optimizer.
    """
    if source.checkpoint is None or "optimizer" not in source.checkpoint.meta["tensors"]:
        raise CheckpointError(
            f"transfer.optimizer: init_from={source.folder} holds parameters only, as converted "
            "models do; remove transfer.optimizer, or name a training checkpoint"
        )
    name = source.checkpoint.config()["optimizer"].get("name", Optimizer().name)
    if name != config.optimizer.name:
        raise CheckpointError(
            f"transfer.optimizer: init_from={source.folder} holds the moments of {name}, not of "
            f"optimizer.name={config.optimizer.name}; remove transfer.optimizer"
        )
    return source.checkpoint


def matches_of(
    old: Vocabulary, new: Vocabulary, options: Transfer, languages: Sequence[str]
) -> Matches:
    """Finds the pieces of another vocabulary from which each piece of a run's vocabulary starts.

    Args:
      old: the other model's vocabulary.
      new: the run's vocabulary.
      options: the section `transfer` of the config.
      languages: of the run.

    Raises:
      ConfigError: if a dictionary cannot be read, or no language has one.
    """
    return match(old, new, dictionaries_of(options, languages), options.rules)


def report(matches: Matches, store: RowStore) -> str:
    """Returns a table: the shares of pieces, and of each language's tokens, by matching rule."""
    counts: dict[str, np.ndarray] = {}
    for task in (*store.tasks("text"), *store.tasks("sentences")):
        rows = store.read(task.name, "train", np.arange(min(_ROWS, task.train.rows)))
        ids = rows["tokens"].ravel()
        counts.setdefault(task.languages[0], np.bincount(ids, minlength=len(matches.rules)))
    return share_table(matches, counts)


def _match_rows(old: jax.Array, new: jax.Array, matches: Matches, config: Config) -> jax.Array:
    """Returns a table with a row for each piece of the run's vocabulary.

    Args:
      old: the other model's table [vocabulary, hidden] or bias [vocabulary].
      new: the run's new array, for its shape and sharding.
      matches: for each piece of the run's vocabulary, the matching pieces of the other vocabulary.
    """
    unmatched, init_std, seed = config.transfer.unmatched, config.model.init_std, config.train.seed
    assert isinstance(new.sharding, NamedSharding)
    everywhere = NamedSharding(new.sharding.mesh, PartitionSpec())  # each host needs all rows
    rows = np.asarray(jax.jit(lambda x: x, out_shardings=everywhere)(old))
    if rows.ndim == 1:
        matched = vocabulary_matching.match_bias(rows, matches)
    else:
        matched = vocabulary_matching.embeddings(rows, matches, unmatched, init_std, seed)
    return jax.make_array_from_callback(new.shape, new.sharding, lambda index: matched[index])


def dictionaries_of(options: Transfer, languages: Sequence[str]) -> tuple[Dictionary, ...]:
    """Loads the dictionaries between `transfer.language` and other languages, in either direction.

    Args:
      options: the section `transfer` of the config.
      languages: of the run.

    Raises:
      ConfigError: if a dictionary cannot be read, or no language has one.
    """
    source_language = options.language
    other_languages = [name for name in languages if name != source_language]
    pairs = [
        pair
        for language in other_languages
        for pair in (f"{source_language}-{language}", f"{language}-{source_language}")
        if any(
            "{pair}" in template and Path(template.replace("{pair}", pair)).expanduser().is_file()
            for template in options.dictionaries
        )
    ]
    if not pairs and any("{pair}" in template for template in options.dictionaries):
        raise ConfigError(
            f"transfer.dictionaries={','.join(options.dictionaries)}: no file for "
            f"{source_language} with any of {', '.join(other_languages)}; {{pair}} becomes "
            f"{source_language}-LANGUAGE or LANGUAGE-{source_language}"
        )
    return vocabulary_matching.load(options.dictionaries, pairs, source_language)
