"""Writes an HTML page about runs: curves, bars by language, tables, and differences of configs.

    python -m xlj.report WORKDIR... [--output=report.html]

Each argument is a workdir, NAME=WORKDIR, or a folder of workdirs such as the folder of a sweep. The
page needs no network and no other file. More: docs/sweep.md
"""

from argparse import Namespace
from pathlib import Path

from xlj.cli import command, outputs
from xlj.cli.parser import Parser


def _add_flags(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "workdirs",
        metavar="WORKDIR",
        nargs="+",
        help="runs to show, in this order: workdirs, NAME=WORKDIR or folders of workdirs",
    )
    parser.add_file("--output", "file for the page [report.html]", default=Path("report.html"))
    add("--title", default="xlj report", help="title of the page [xlj report]")


@command.entry("report", __doc__, _add_flags)
def main(flags: Namespace) -> None:
    """Reads the workdirs and writes the page."""
    outputs.check_output("output", flags.output)
    from xlj.io import atomic
    from xlj.tools.reporting import runs
    from xlj.tools.reporting.page import page

    reported = runs.find(flags.workdirs)
    inputs = [("", file) for run in reported for file in runs.files(run.workdir)]
    outputs.check_no_input("output", flags.output, inputs)
    atomic.write(flags.output, page(reported, flags.title).encode())
    print(f"report: {flags.output}, {len(reported)} run{'s' * (len(reported) > 1)}")


if __name__ == "__main__":
    raise SystemExit(main())
