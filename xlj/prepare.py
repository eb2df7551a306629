"""Makes the rows of a config ahead of training, and prints what became of the text.

    python -m xlj.prepare --config=configs/NAME.py [--config.data.workers=8]

`xlj.train` does the same on its first start; on several hosts, prepare first. Rows that are there
are left alone. A run that was killed goes on where it stopped. docs/data.md tells more.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from xlj import config as schema
from xlj.cli import command
from xlj.cli.parser import Parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("prepare", __doc__, schema)
    parser.add_argument(
        "--runner",
        metavar="NAME",
        default="",
        help="Apache Beam runner that makes the rows; processes of this machine by itself",
    )
    parser.add_argument(
        "--pipeline",
        metavar="OPTION",
        action="append",
        default=[],
        help="an option for Beam, e.g. --pipeline=--direct_num_workers=4; may be repeated",
    )
    return command.run(parser, _prepare, argv)


def _prepare(flags: Namespace) -> None:
    """Makes the rows, and prints the report."""
    from xlj.data.rows.making import ensure_rows
    from xlj.data.rows.report import report

    config = flags.config
    if config.init_from:
        from xlj.training.initialisation import adopt_vocabulary

        config = adopt_vocabulary(config)
    store = ensure_rows(config, flags.runner, flags.pipeline)
    print(report(store, config.data.alpha))


if __name__ == "__main__":
    sys.exit(main())
