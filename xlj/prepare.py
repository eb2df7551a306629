"""Builds the rows of a config before training, and prints statistics of the text.

    python -m xlj.prepare --config=configs/NAME.py [--config.data.workers=8]

Rows are sequences of token ids, which a run reads from disk. `xlj.train` builds missing rows too;
for a run on several hosts, use this command first. The command reuses existing rows, and resumes if
it was interrupted. It also prints the command that trains from the rows without the text. More:
docs/data.md
"""

import shlex
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from xlj import config as schema
from xlj.cli import command
from xlj.cli.parser import Parser

if TYPE_CHECKING:
    from xlj.data.rows.vectors import Embed


def _add_flags(parser: Parser) -> None:
    parser.add_argument(
        "--runner",
        metavar="NAME",
        default="",
        help="Apache Beam runner that builds the rows [no Beam: processes on this machine]",
    )
    parser.add_argument(
        "--pipeline",
        metavar="OPTION",
        action="append",
        default=[],
        help="option of the Beam pipeline, such as --pipeline=--direct_num_workers=4; may be "
        "repeated",
    )


@command.entry("prepare", __doc__, _add_flags, schema)
def main(flags: Namespace) -> None:
    """Builds the rows, and prints a report and the command that trains from them."""
    from xlj.config import row_kinds
    from xlj.data.rows.findings import malformed_records
    from xlj.data.rows.preparing import open_rows, prepare_rows
    from xlj.data.rows.report import report
    from xlj.training import revisions

    config = revisions.pin(flags.config)
    if config.transfer.model == "init_from" or any(
        row_kinds.load(kind).teacher for kind in config.row_kinds()
    ):
        from xlj.training import start

        config = start.adopt_model(config)
    config, store = open_rows(config)
    if config.init_from or (config.names_a_model() and not config.data.vocabulary):
        from xlj.training import start

        config, _ = start.adopt_vocabulary(config, start.find_vocabulary_source(config), store)
    store = store or prepare_rows(config, flags.runner, flags.pipeline, teach=_teach(config))
    from xlj.training import duration_steps, schedule
    from xlj.training.schedule import Schedule

    config, notes = duration_steps.resolve(config, store)
    warnings = schedule.make_warnings(Schedule(config, store), store)
    print(report(store, config.data), *notes, *warnings, sep="\n")
    of_text = [f"config.{key}" for key, _ in schema.keys() if key.startswith("data.")]
    for name, options in config.objectives_on().items():  # the rows contain the teacher's vectors
        if options.row_kind.teacher:
            keys = ("teacher", "teacher_prompt", "teacher_digest", "width")
            of_text += [f"config.{options.path(name)}.{key}" for key in keys]
    for of_run in ("config.data.alpha", "config.data.sampled"):
        of_text.remove(of_run)
    train = command.line("train", flags.arguments, ("runner", "pipeline", *of_text))
    rows = shlex.quote(f"--config.data.rows={store.path}")
    print(f"\nto train from these rows, without the text:\n  {train} {rows}")
    if left_out := malformed_records(store.manifest.tasks):
        print(left_out)


def _teach(config: schema.Config) -> "Callable[[str], Embed]":
    """Returns a function that loads the teacher of a kind of rows (`prepare_rows`)."""

    def load(kind: str) -> "Embed":
        from xlj.retrieval.teaching import teachers_of  # imports JAX

        return teachers_of(config)(kind)

    return load


if __name__ == "__main__":
    raise SystemExit(main())
