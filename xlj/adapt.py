"""Adapts a model to more languages, and exports it to Hugging Face.

    python -m xlj.adapt --from=DIR --languages=yo,sw --mono='corpus/{language}.txt' --replay=en \\
        [--pairs=en-yo,en-sw --parallel='corpus/{pair}.tsv'] --output=DIR

The command adds pieces to the vocabulary if the vocabulary splits words of a new language into many
pieces. It then trains on text (masked language modelling) and on sentence pairs (TLM and ranking),
with the recipe configs/adapt.py. It measures the model before and after the training, and writes
OUTPUT/report.html and OUTPUT/model, a Hugging Face folder. The same command resumes an interrupted
adaptation. With --sentences, the model is a sentence encoder, which keeps its space. More:
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
from xlj.io import own_process

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
    add(
        "--languages",
        metavar="yo,sw",
        required=True,
        type=_parse_names,
        help="new languages, separated by commas",
    )
    add(
        "--mono",
        metavar="TEMPLATE",
        required=True,
        help="template of the text files of new and old languages, with {language} in place of the "
        "language. A file has one sentence per line, and a blank line between documents. It may "
        "also be compressed (.gz, .zst), JSON lines or Parquet (docs/data.md)",
    )
    add(
        "--pairs",
        metavar="en-yo,en-sw",
        default=(),
        type=_parse_names,
        help="language pairs of the files of --parallel, separated by commas [no pairs]",
    )
    add(
        "--parallel",
        metavar="TEMPLATE",
        help="template of the TSV files of sentence pairs, with {pair} in place of the language "
        "pair; needs --pairs [train without sentence pairs]",
    )
    add(
        "--test",
        metavar="TEMPLATE",
        help="template of the TSV files of test pairs, with {pair} in place of the language pair. "
        "The test pairs measure how often the model finds translations; training excludes the "
        "lines of these files [held-out pairs of --parallel]",
    )
    add(
        "--output",
        metavar="DIR",
        required=True,
        help="folder for all results: a new folder, or the folder of the adaptation to resume",
    )
    add(
        "--dry_run",
        action="store_true",
        help="choose pieces and build rows, then print the plan without training",
    )
    _add_sentence_flags(parser)
    _add_choices(parser)


def _add_sentence_flags(parser: Parser) -> None:
    """Adds the flags for sentence encoders."""
    add = parser.add_argument
    add(
        "--sentences",
        action="store_true",
        help="--from is a sentence encoder, which keeps its vectors, modules and prompts: train "
        "the vectors of --pairs and of the text of --replay towards those of --from, instead of "
        "masked language modelling; needs --pairs and --replay",
    )
    add(
        "--prompt",
        metavar="TEXT",
        default="",
        help="with --sentences: text that begins each sentence, such as 'query: ' [the default "
        "prompt of --from]",
    )


def _add_choices(parser: Parser) -> None:
    """Adds the flags for values that the command otherwise chooses."""
    add = parser.add_argument
    add(
        "--replay",
        metavar="en,de",
        type=_parse_names,
        help="old languages to train on too, so that the model does not forget them "
        "[the old languages of --pairs that have text in --mono]",
    )
    add(
        "--replay_share",
        metavar="P",
        type=_parse_share,
        default=0.3,
        help="share of the training text that is drawn from the languages of --replay [0.3]",
    )
    add(
        "--pieces",
        metavar="N",
        type=at_least(0),
        help="number of pieces to add for each new language; 0 keeps the vocabulary [0 for "
        "languages that the vocabulary already splits into few pieces; for others, enough for at "
        "most 1.1 times the pieces per word of the best --replay language (docs/adapt.md)]",
    )
    add(
        "--steps",
        metavar="N",
        type=at_least(1),
        help="number of training steps; warm-up and decay change in proportion [train.steps of the "
        "config, or fewer steps if that is more than 20 passes over the text of the new languages]",
    )
    add(
        "--before_weight",
        metavar="W",
        type=_parse_weight,
        default=0.0,
        help="weight of the model before the training in the adapted model, whose parameters are "
        "the mean of those before (weight W) and after (weight 1 - W). It may be changed when the "
        "training is finished: the same command with another weight only measures and exports "
        "again [0]",
    )


def _implied(flags: Namespace) -> configs.Implied:
    """Returns the config values of the training run that the flags set."""
    from xlj.data.text.templates import fill, split_pair

    if bool(flags.pairs) != bool(flags.parallel):
        raise ConfigError("--pairs and --parallel must be set together; set both or neither")
    sides = [side for pair in flags.pairs for side in split_pair(pair, flags.languages, "--pairs")]
    if flags.replay is None:
        old_languages = [name for name in dict.fromkeys(sides) if name not in flags.languages]
        flags.replay = tuple(name for name in old_languages if _has_text(flags.mono, name))
    if flags.test and not flags.pairs:
        raise ConfigError("--test needs --pairs; set it to the language pairs of the test files")
    if flags.prompt and not flags.sentences:
        raise ConfigError("--prompt needs --sentences; remove one of the two")
    if flags.sentences and not (flags.pairs and flags.replay):
        raise ConfigError(
            "--sentences needs --pairs between new and old languages, whose old sentences the "
            "teacher reads, and --replay: text of old languages, which keeps their vectors"
        )
    if both := set(flags.replay) & set(flags.languages):
        name = both.pop()
        raise ConfigError(
            f"--replay={name}: --languages also has {name}; remove it from one of the two flags"
        )
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
    if flags.sentences:
        old = dict.fromkeys(side for side in sides if side not in flags.languages)
        values["objectives.sentence_distillation.languages"] = ",".join(old)
        for name in ("sentence_distillation", "text_distillation"):
            values[f"objectives.{name}.teacher"] = flags.source
            values[f"objectives.{name}.teacher_prompt"] = flags.prompt
    tests = [fill(flags.test, {"pair": pair}, "--test") for pair in flags.pairs if flags.test]

    def change(config: "ConfigDict") -> None:
        if not flags.pairs:
            variants.text_only(config)
        # The files that --config.data.exclude names are excluded too.
        config.data.exclude = ",".join(filter(None, [config.data.exclude, *tests]))

    overrides = [f"--config.{key}={value}" for key, value in values.items()]
    recipe = "adapt:sentences" if flags.sentences else "adapt"
    return configs.Implied(recipe, overrides, change)


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
    from xlj.adaptation import stages
    from xlj.distributed.preemption import Preemption

    Preemption.owns_process = flags.is_process
    request = stages.AdaptRequest(
        flags.languages,
        flags.replay,
        flags.replay_share,
        flags.pieces,
        flags.steps,
        flags.prompt if flags.sentences else None,
        flags.before_weight,
    )
    explicit = [configs.key_of(override) for override in flags.overrides]
    is_finished = stages.adapt(request, flags.config, output, explicit, flags.dry_run)
    return 0 if is_finished or flags.dry_run else own_process.CONTINUE


def _parse_names(text: str) -> tuple[str, ...]:
    """Parses names that are separated by commas."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(
            f"{text!r}: a name is empty or appears twice; expected different names, separated by "
            "commas"
        )
    return names


def _parse_share(text: str) -> float:
    """Parses a share above 0 and below 1."""
    if not 0 < float(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} must be above 0 and below 1")
    return float(text)


def _parse_weight(text: str) -> float:
    """Parses a weight from 0 to below 1."""
    if not 0 <= float(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 0 and below 1")
    return float(text)


# argparse prints this name if the text is not a number.
_parse_share.__name__ = _parse_weight.__name__ = "float"


if __name__ == "__main__":
    raise SystemExit(main())
