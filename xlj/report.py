"""Makes one HTML page about runs: curves, bars by language, tables, what their configs differ in.

    python -m xlj.report WORKDIR... [--output=report.html]

WORKDIR is a workdir, NAME=WORKDIR, or a folder of workdirs such as a sweep's. The page needs no
network and no other file. docs/sweep.md tells more.
"""

from argparse import Namespace
from pathlib import Path

from xlj.cli import command, outputs
from xlj.cli.parser import Parser


def _add_flags(parser: Parser) -> None:
    add = parser.add_argument
    add("workdirs", metavar="WORKDIR", nargs="+", help="what to report on, in this order")
    parser.add_file("--output", "where the page goes [report.html]", default=Path("report.html"))
    add("--title", default="xlj report", help="what stands above [xlj report]")


@command.entry("report", __doc__, _add_flags)
def main(flags: Namespace) -> None:
    """Reads the workdirs, writes the page."""
    outputs.check_output("output", flags.output)
    from xlj.io import atomic
    from xlj.reporting import runs
    from xlj.reporting.page import page

    found = runs.find(flags.workdirs)
    inputs = [("", file) for run in found for file in runs.files(run.workdir)]
    outputs.check_other("output", flags.output, inputs)
    atomic.write(flags.output, page(found, flags.title).encode())
    print(f"report: {flags.output}, {len(found)} run{'s' * (len(found) > 1)}")


if __name__ == "__main__":
    raise SystemExit(main())
