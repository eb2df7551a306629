"""Takes models in from Hugging Face folders, and out to them; adds pieces to a vocabulary.

    python -m xlj.convert import --source=DIR --output=DIR
    python -m xlj.convert export --checkpoint=DIR --output=DIR
    python -m xlj.convert extend --checkpoint=DIR --text=new.txt --pieces=2000 --output=DIR

Nothing is written unless all of it can be. docs/convert.md tells more.
"""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from pathlib import Path
from typing import Any

from xlj import cli
from xlj.config import ConfigError
from xlj.config.paths import local_path

_POOLINGS = ("mean", "first")


def _flags() -> Namespace:
    parser = cli.Parser(__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="import|export|extend")
    add = actions.add_parser(
        "import",
        doc="Makes a checkpoint of xlj, to start from with --config.init_from, of a Hugging Face "
        "folder:\nXLM-R, RoBERTa, BERT, mBERT, ERNIE-M, XLM-Align or InfoXLM, with its tokenizer.",
    ).add_argument
    add("--source", metavar="DIR", required=True, type=Path, help="the Hugging Face folder")
    add("--output", metavar="DIR", required=True, type=Path, help="a new folder")
    add("--seed", metavar="N", type=int, default=0, help="of a head that is not there [0]")
    add = actions.add_parser(
        "export",
        doc="Writes a folder that transformers' AutoModelForMaskedLM, AutoModel and AutoTokenizer "
        "load;\nof a fine-tuned model AutoModelForSequenceClassification, TokenClassification or\n"
        "QuestionAnswering.",
    ).add_argument
    add("--checkpoint", metavar="DIR", required=True, help=cli.CHECKPOINT)
    add("--output", metavar="DIR", required=True, type=Path, help="a new folder")
    add(
        "--pooling",
        choices=_POOLINGS,
        help="make it a sentence-transformers folder too: the mean of all tokens, <s> and </s> "
        "too, or <s>'s vector",
    )
    add(
        "--layer",
        metavar="N",
        type=int,
        help="end after this layer, for sentence vectors, without the head if it is not the last",
    )
    add = actions.add_parser(
        "extend",
        doc="Makes a checkpoint whose vocabulary has more pieces, for languages that it cuts to\n"
        "bits. A new piece starts from the mean of those that it was cut into.",
    ).add_argument
    add("--checkpoint", metavar="DIR", required=True, help=cli.CHECKPOINT)
    add(
        "--text",
        metavar="FILE",
        required=True,
        nargs="+",
        type=Path,
        help="text of the new languages, a sentence a line: also .gz, .xz or .zst",
    )
    add("--pieces", metavar="N", required=True, type=int, help="how many to add")
    add(
        "--share",
        metavar="P",
        type=float,
        default=0.01,
        help="of the new languages in the text to come: more cuts them into fewer pieces, and old "
        "languages at other places [0.01]",
    )
    add("--output", metavar="DIR", required=True, type=Path, help="a new folder")
    return parser.parse_args()


def run(flags: Namespace) -> None:
    """Converts, and tells what became of each tensor."""
    output = local_path("--output", flags.output).absolute()
    if output.exists():
        raise ConfigError(f"--output={flags.output} is there already; name a new folder")
    try:
        if flags.action == "import":
            _import(flags.source.expanduser(), output, flags.seed)
        elif flags.action == "export":
            _export(flags, output)
        else:
            _extend(flags, output)
    except OSError as error:  # what is read has errors of its own
        raise ConfigError(f"--output={flags.output} cannot be written: {error}") from None


def _import(source: Path, output: Path, seed: int) -> None:
    import jax

    from xlj.interop.architectures import TASKS
    from xlj.models import heads
    from xlj.training import checkpoints, partitioning, stored_models

    found = stored_models.of_folder(source)
    print(found.report)
    params = found.params(partitioning.one_device())
    vocabulary = found.vocabulary()
    if not {"prediction_head", *TASKS} & params.keys():
        print(f"initialised anew, with seed {seed}: prediction_head")
        params["prediction_head"] = heads.init_prediction(
            jax.random.key(seed), found.model, vocabulary.size
        )
    config = _config(found, params, found.model)
    checkpoints.write_params(output, params, config, vocabulary, [])
    print(f"\ncheckpoint: {output}\nnext: --config.init_from={output}, or --checkpoint={output}")


def _config(source: Any, params: Any, model: Any) -> Any:
    """The config of converted parameters; with that of their task, if a `Source` has its head."""
    from xlj.config import Supervised, build
    from xlj.interop.architectures import TASKS
    from xlj.models.encoder import FIRST_POSITION

    config = build({"init_from": str(source.folder), "model": dataclasses.asdict(model)})
    for head in TASKS.keys() & params.keys():
        length = model.positions - FIRST_POSITION
        task = Supervised(TASKS[head], 0, length, source.labels)
        config = dataclasses.replace(config, objectives=task)
    return config


def _export(flags: Namespace, output: Path) -> None:
    from xlj.interop import exporting, model_card
    from xlj.interop.architectures import TASKS, auto_class
    from xlj.training import stored_models

    source = stored_models.find(flags.checkpoint, "--checkpoint")
    layers = source.model.layers
    if flags.layer is not None and not 1 <= flags.layer <= layers:
        raise ConfigError(f"--layer={flags.layer}: it has layers 1 to {layers}")
    model = dataclasses.replace(source.model, layers=flags.layer or layers)
    vocabulary, headless = source.vocabulary(), model.layers < layers
    exported = exporting.plan(source.leaves, model, vocabulary, headless, source.labels)
    # As step 0 is of other hands: its tokenizer framed pairs as its family does.
    fine_tuned = exported.head in TASKS and source.checkpoint and source.checkpoint.step
    with exporting.new_folder(output) as folder:
        exporting.write(folder, exported, source.leaves, model, vocabulary, bool(fine_tuned))
        if flags.pooling:
            exporting.write_pooling(folder, model, flags.pooling)
        text = model_card.card(
            output.name, exported, model, vocabulary, flags.pooling or "", *_training(source)
        )
        (folder / "README.md").write_text(text, "utf-8")
    for name, reason in exported.left_out.items():
        print(f"not exported: {name} ({reason})")
    print(f"load it with {auto_class(exported.head)}" + ("" if exported.head else ": no head"))
    if exported.architecture.model_type == "xlj":
        print("it has a relative position bias: load it with trust_remote_code=True")
    print(f"folder: {output}")


def _training(source: Any) -> tuple:
    """What the checkpoint of a `Source` says of its training, its last evaluation, and what it
    scored in fine-tuning."""
    from xlj.training import metrics
    from xlj.training.workdir import finished_run

    if source.checkpoint is None:
        return None, None, None
    workdir, step = source.folder.absolute().parent.parent, source.checkpoint.step
    in_workdir = source.folder.absolute().parent.name == "checkpoints"
    found = in_workdir and (workdir / metrics.FILE).is_file()
    lines = metrics.read(workdir) if found else []
    evaluated = [line for line in lines if line["step"] <= step and "eval/" in " ".join(line)]
    run = finished_run(workdir) if in_workdir else None
    if run and run["step"] != step:
        print(f"{workdir} was scored at step {run['step']}, not {step}: the card has no scores")
        run = None
    return source.checkpoint.meta, evaluated[-1] if evaluated else None, run


def _extend(flags: Namespace, output: Path) -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np

    from xlj.data.tokenizer.layout import UNK
    from xlj.inference import pretrained
    from xlj.interop import matched_rows
    from xlj.interop.vocabulary_extension import extend, initial_rows
    from xlj.training import checkpoints, partitioning, stored_models

    if flags.pieces < 1 or not 0 < flags.share <= 1:
        raise ConfigError("--pieces must be 1 or more, and --share above 0 and at most 1")
    lines = [line for path in flags.text for line in _lines(path.expanduser())]
    source = stored_models.find(flags.checkpoint, "--checkpoint")
    old = source.vocabulary()
    new = extend(old, lines, flags.pieces, flags.share)
    matches = initial_rows(old, new)
    params, model, _ = pretrained.of(source)

    def extended(path: Any, leaf: jax.Array) -> jax.Array:
        name, array = partitioning.name_of(path), np.asarray(leaf)
        if name.endswith("embeddings/word"):  # a generator may have its own
            return jnp.asarray(matched_rows.embeddings(array, matches, "sampled", 0.0, seed=0))
        if name.endswith("head/bias"):
            return jnp.asarray(matched_rows.match_bias(array, matches))
        return leaf

    params = jax.tree_util.tree_map_with_path(extended, params)
    config = _config(source, params, model)
    checkpoints.write_params(output, params, config, new, list(source.languages))
    words = sum(len(line.split()) for line in lines)
    print(f"{old.size:,} -> {new.size:,} ids")
    for name, vocabulary in (("before", old), ("after", new)):
        ids = vocabulary.encode(lines).ids
        unknown = 100 * np.mean(ids == UNK)
        print(f"{name}: {len(ids) / words:.2f} pieces a word, {unknown:.2f} % <unk>")
    print(f"checkpoint: {output}\nnext: --config.init_from={output}, or --checkpoint={output}")


def _lines(path: Path) -> list[str]:
    """The lines of a file as training reads them, blank ones left out.

    Raises:
      ConfigError: if it cannot be read, holds no text, or a line that is not UTF-8.
    """
    from xlj.data.text.cleaning import clean
    from xlj.io import files

    lines = [text for line in files.lines(path) if (text := clean(line))]
    if not lines:
        raise ConfigError(f"--text={path} holds no text")
    return lines


if __name__ == "__main__":
    with cli.readable_errors():
        run(_flags())
