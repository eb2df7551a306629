"""Scores predictions as XTREME does: every task, by language, with average and transfer gap.

    python -m xlj.evaluate --xtreme_labels=DIR --xtreme_predictions=DIR [--output=scores.md]

Both folders contain files TASK/test-LANGUAGE.tsv (.json for question answering), as submissions to
XTREME do. The command prints the scores as JSON. More: docs/evaluate.md
"""

import json
import sys
from argparse import Namespace
from pathlib import Path

from xlj.cli import command, outputs
from xlj.cli.parser import Parser


def _add_flags(parser: Parser) -> None:
    add = parser.add_argument
    add("--xtreme_labels", metavar="DIR", required=True, type=Path, help="folder of gold labels")
    add(
        "--xtreme_predictions",
        metavar="DIR",
        required=True,
        type=Path,
        help="folder of predictions",
    )
    parser.add_file("--output", "file for the scores: FILE.json, or FILE.md for tables by language")
    parser.add_file("--plot", "file for a plot of the scores (.png, .svg, .pdf)")


@command.entry("evaluate", __doc__, _add_flags)
def main(flags: Namespace) -> None:
    """Scores the predictions; prints, writes and plots the scores."""
    names = ("xtreme_labels", "xtreme_predictions")
    inputs = [(name, file) for name in names for file in getattr(flags, name).glob("*/test-*")]
    outputs.check_output("output", flags.output, inputs, (".json", ".md"))
    outputs.check_output("plot", flags.plot, inputs, outputs.PLOTS)
    from xlj.evaluation import language_report, xtreme
    from xlj.io import atomic

    results, notes = xtreme.score(flags.xtreme_labels, flags.xtreme_predictions)
    for note in notes:
        print(note, file=sys.stderr)
    text = json.dumps(xtreme.as_json(results), indent=2) + "\n"
    print(text, end="", flush=True)
    if flags.output:
        content = xtreme.as_markdown(results) if flags.output.suffix == ".md" else text
        atomic.write(flags.output, content.encode())
    if flags.plot:
        panels = xtreme.panels(results)
        outputs.draw(flags.plot, lambda: language_report.plot(panels, flags.plot))


if __name__ == "__main__":
    raise SystemExit(main())
