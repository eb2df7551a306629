"""Adapts a model to more languages: pieces, training, measures, a report and an exported folder.

    python -m xlj.adapt --from=DIR --languages=yo,sw --mono='corpus/{language}.txt' --replay=en \\
        [--pairs=en-yo,en-sw --parallel='corpus/{pair}.tsv'] --output=DIR

Adds pieces where the tokenizer splits words into many, and trains on text (masked language
modelling) and on sentence pairs (TLM and ranking). Measures the model before and after, and writes
OUTPUT/report.html and OUTPUT/model, a Hugging Face folder. The same command again continues where
it was stopped. The training is the recipe configs/adapt.py; --config names another, and
--config.KEY=VALUE changes it. docs/tutorials/adapting.md has an example.
"""

import argparse
from argparse import Namespace

from xlj import config as schema
from xlj.cli import command, configs, outputs
from xlj.cli.parser import Parser, at_least
from xlj.config import ConfigError, variants
from xlj.config.paths import local_path
from xlj.io import exit_codes


def _add_flags(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--from",
        dest="source",
        metavar="DIR",
        required=True,
        help="the model to adapt: a Hugging Face folder, a workdir or a checkpoint",
    )
    add("--languages", metavar="yo,sw", required=True, type=_names, help="the new languages")
    add(
        "--mono",
        metavar="TEMPLATE",
        required=True,
        help="text of all languages, a file for each {language}: one sentence per line, a blank "
        "line between documents; also .gz, .zst, JSON lines and Parquet (docs/data.md)",
    )
    add("--pairs", metavar="en-yo,en-sw", default=(), type=_names, help="pairs of languages")
    add("--parallel", metavar="TEMPLATE", help="sentence pairs, a TSV file for each {pair}")
    add(
        "--replay",
        metavar="en,de",
        type=_names,
        help="old languages whose text is trained on too, so that the model does not forget them "
        "[the old languages of --pairs]",
    )
    add(
        "--replay_share",
        metavar="P",
        type=_share,
        default=0.3,
        help="the share of the text that is drawn from the replayed languages [0.3]",
    )
    add(
        "--pieces",
        metavar="N",
        type=at_least(0),
        help="pieces to add for each new language, or 0 [auto: as many as bring a language near "
        "the old ones, if its words are split into 1.25 times as many pieces]",
    )
    add(
        "--steps",
        metavar="N",
        type=at_least(1),
        help="steps of training; warm-up and decay change in proportion [auto: those of the "
        "recipe, or as many as pass 20 times over the text of the new languages]",
    )
    add(
        "--test",
        metavar="TEMPLATE",
        help="test pairs, a TSV file for each {pair}, for the accuracy of finding translations; "
        "their lines are left out of training [held-out pairs of --parallel]",
    )
    add("--output", metavar="DIR", required=True, help="a new folder for all results")
    add(
        "--dry_run",
        action="store_true",
        help="choose the pieces, build the rows, print what training would do, and stop",
    )


def _implied(flags: Namespace) -> configs.Implied:
    """What the flags set in the config of the training run."""
    from xlj.data.text.templates import fill, split_pair

    if bool(flags.pairs) != bool(flags.parallel):
        raise ConfigError("--pairs and --parallel belong together; give both or neither")
    sides = [side for pair in flags.pairs for side in split_pair(pair, flags.languages, "--pairs")]
    if flags.replay is None:
        old = [name for name in dict.fromkeys(sides) if name not in flags.languages]
        flags.replay = tuple(name for name in old if _has_text(flags.mono, name))
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
        values["data.exclude"] = ",".join(
            fill(flags.test, {"pair": pair}, "--test") for pair in flags.pairs
        )
    overrides = [f"--config.{key}={value}" for key, value in values.items()]
    return configs.Implied("adapt", overrides, None if flags.pairs else variants.text_only)


def _has_text(templates: str, language: str) -> bool:
    """Whether a template of --mono has text of a language."""
    from xlj.data.text.text_tasks import text_tasks

    try:
        return bool(
            text_tasks(schema.build({"data": {"mono": templates, "languages": language}}).data)
        )
    except ConfigError:
        return False


@command.entry("adapt", __doc__, _add_flags, schema, _implied)
def main(flags: Namespace) -> int:
    """Adapts, or continues; returns 75 if training was asked to stop."""
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
