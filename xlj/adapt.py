"""Adapts a model to more languages, and exports it to Hugging Face.

    python -m xlj.adapt --from=DIR --languages=yo,sw --mono='corpus/{language}.txt' --replay=en \\
        [--pairs=en-yo,en-sw --parallel='corpus/{pair}.tsv'] --output=DIR

Adds pieces to the vocabulary if it splits words of a new language into many pieces. Then trains on
text (masked language modelling) and on sentence pairs (TLM and ranking), with the recipe
configs/adapt.py. Measures the model before and after, and writes OUTPUT/report.html and
OUTPUT/model, a Hugging Face folder. The same command resumes a stopped adaptation. More:
docs/adapt.md
"""

import argparse
from argparse import Namespace
from typing import TYPE_CHECKING

from xlj import config as schema
from xlj.cli import command, configs, outputs
from xlj.cli.parser import Parser, at_least
from xlj.config import ConfigError, variants
from xlj.config.paths import local_path
from xlj.io import exit_codes

if TYPE_CHECKING:  # a command reads its flags without ml_collections
    from ml_collections import ConfigDict


def _add_flags(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--from",
        dest="source",
        metavar="DIR",
        required=True,
        help="model to adapt: a Hugging Face folder, a workdir or a checkpoint folder",
    )
    add("--languages", metavar="yo,sw", required=True, type=_names, help="new languages")
    add(
        "--mono",
        metavar="TEMPLATE",
        required=True,
        help="text of new and old languages, one file per {language}: one sentence per line, a "
        "blank line between documents; also .gz, .zst, JSON lines and Parquet (docs/data.md)",
    )
    add(
        "--pairs",
        metavar="en-yo,en-sw",
        default=(),
        type=_names,
        help="language pairs of --parallel",
    )
    add("--parallel", metavar="TEMPLATE", help="sentence pairs, one TSV file per {pair}")
    add(
        "--test",
        metavar="TEMPLATE",
        help="test pairs, one TSV file per {pair}, to measure how often translations are found; "
        "training excludes their lines [held-out pairs of --parallel]",
    )
    add("--output", metavar="DIR", required=True, help="new folder for all results")
    add(
        "--dry_run",
        action="store_true",
        help="choose pieces and build rows, then print the plan without training",
    )
    _add_choices(parser)


def _add_choices(parser: Parser) -> None:
    """Adds the flags that change what the command chooses."""
    add = parser.add_argument
    add(
        "--replay",
        metavar="en,de",
        type=_names,
        help="old languages to train on too, so that the model does not forget them [the old "
        "languages of --pairs that have text]",
    )
    add(
        "--replay_share",
        metavar="P",
        type=_share,
        default=0.3,
        help="share of the replayed languages in the text that is drawn [0.3]",
    )
    add(
        "--pieces",
        metavar="N",
        type=at_least(0),
        help="pieces to add for each new language; 0 keeps the vocabulary [as many as a language "
        "needs to have nearly as few pieces per word as the best old language]",
    )
    add(
        "--steps",
        metavar="N",
        type=at_least(1),
        help="training steps; warm-up and decay change in proportion [those of the recipe, but at "
        "most 20 passes over the text of the new languages]",
    )


def _implied(flags: Namespace) -> configs.Implied:
    """Returns what the flags set in the config of the training run."""
    from xlj.data.text.templates import fill, split_pair

    if bool(flags.pairs) != bool(flags.parallel):
        raise ConfigError("--pairs and --parallel belong together; give both or neither")
    sides = [side for pair in flags.pairs for side in split_pair(pair, flags.languages, "--pairs")]
    if flags.replay is None:
        old = [name for name in dict.fromkeys(sides) if name not in flags.languages]
        flags.replay = tuple(name for name in old if _has_text(flags.mono, name))
    if flags.test and not flags.pairs:
        raise ConfigError("--test needs --pairs, the pairs of languages that it has files of")
    if both := set(flags.replay) & set(flags.languages):
        raise ConfigError(f"--replay={both.pop()}: this is one of --languages, the new ones")
    values = {
        "init_from": flags.source,
        "transfer.model": "init_from",
        "data.languages": ",".join((*flags.replay, *flags.languages)),
        "data.mono": flags.mono,
        "data.pairs": ",".join(flags.pairs),
        "data.parallel": flags.parallel or "",
    }
    if flags.test:
        values["evaluation.retrieval.source"] = flags.test
    tests = [fill(flags.test, {"pair": pair}, "--test") for pair in flags.pairs if flags.test]

    def change(config: "ConfigDict") -> None:
        if not flags.pairs:
            variants.text_only(config)
        # Besides the files that --config.data.exclude names.
        config.data.exclude = ",".join(filter(None, [config.data.exclude, *tests]))

    overrides = [f"--config.{key}={value}" for key, value in values.items()]
    return configs.Implied("adapt", overrides, change)


def _has_text(templates: str, language: str) -> bool:
    """Returns whether a template of --mono has text of a language."""
    from xlj.data.text.text_tasks import text_tasks

    try:
        return bool(
            text_tasks(schema.build({"data": {"mono": templates, "languages": language}}).data)
        )
    except ConfigError:
        return False


@command.entry("adapt", __doc__, _add_flags, schema, _implied)
def main(flags: Namespace) -> int:
    """Adapts the model, or resumes; returns 75 if training was stopped."""
    output = local_path("--output", flags.output)
    outputs.check_folder("output", output)
    from xlj.adaptation import running
    from xlj.distributed.preemption import Preemption

    Preemption.owns_process = flags.is_process
    request = running.Request(
        flags.languages, flags.replay, flags.replay_share, flags.pieces, flags.steps
    )
    explicit = [configs.key_of(override) for override in flags.overrides]
    is_finished = running.adapt(request, flags.config, output, explicit, flags.dry_run)
    return 0 if is_finished or flags.dry_run else exit_codes.CONTINUE


def _names(text: str) -> tuple[str, ...]:
    """The type of a flag that takes names separated by commas."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r}: a name is empty or appears twice")
    return names


def _share(text: str) -> float:
    """The type of a flag that takes a share above 0 and below 1."""
    if not 0 < float(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} must be above 0 and below 1")
    return float(text)


_share.__name__ = "float"  # argparse names it where the text is no number


if __name__ == "__main__":
    raise SystemExit(main())
