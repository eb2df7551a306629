"""Makes one HTML page about runs: curves, bars by language, tables, what their configs differ in.

    python -m xlj.report WORKDIR... [--output=report.html]

WORKDIR is a workdir, NAME=WORKDIR, or a folder of workdirs such as a sweep's. The page needs no
network and no other file. docs/sweep.md tells more.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from xlj import cli


def _flags() -> Namespace:
    parser = cli.Parser(__doc__)
    add = parser.add_argument
    add("workdirs", metavar="WORKDIR", nargs="+", help="what to report on, in this order")
    add(
        "--output",
        metavar="FILE",
        type=Path,
        default=Path("report.html"),
        help="where the page goes [report.html]",
    )
    add("--title", default="xlj report", help="what stands above [xlj report]")
    return parser.parse_args()


def run(flags: Namespace) -> None:
    """Reads the workdirs, writes the page."""
    cli.check_output("output", flags.output)
    from xlj.io import atomic
    from xlj.reporting import runs
    from xlj.reporting.page import page

    found = runs.find(flags.workdirs)
    atomic.write(flags.output, page(found, flags.title).encode())
    print(f"report: {flags.output}, {len(found)} run{'s' * (len(found) > 1)}")


if __name__ == "__main__":
    with cli.readable_errors():
        run(_flags())
