"""Scores predictions as XTREME does: every task, by language, with average and transfer gap.

    python -m xlj.evaluate --xtreme_labels=DIR --xtreme_predictions=DIR [--output=scores.md]

Both folders hold TASK/test-LANGUAGE.tsv (.json for questions), as XTREME's submissions do. Prints
the scores as JSON. docs/evaluate.md tells more.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

from xlj import cli
from xlj.config import ConfigError


def _flags() -> Namespace:
    parser = cli.Parser(__doc__)
    add = parser.add_argument
    add("--xtreme_labels", metavar="DIR", required=True, type=Path, help="what is right")
    add("--xtreme_predictions", metavar="DIR", required=True, type=Path, help="what was predicted")
    add(
        "--output",
        metavar="FILE",
        type=Path,
        help="where the scores go too: .json, or .md for tables by language",
    )
    add("--plot", metavar="FILE", type=Path, help="where to draw them (.png, .svg, .pdf)")
    return parser.parse_args()


def run(flags: Namespace) -> None:
    """Scores, prints, writes, draws."""
    _check(flags)
    from xlj.data import atomic
    from xlj.downstream import xtreme

    results, notes = xtreme.score(flags.xtreme_labels, flags.xtreme_predictions)
    for note in notes:
        print(note, file=sys.stderr)
    text = json.dumps(xtreme.as_json(results), indent=2) + "\n"
    print(text, end="", flush=True)
    if flags.output:
        written = xtreme.as_markdown(results) if flags.output.suffix == ".md" else text
        atomic.write(flags.output, written.encode())
    if flags.plot:
        _plot(flags.plot, xtreme.panels(results))


def _check(flags: Namespace) -> None:
    for name, path in (("output", flags.output), ("plot", flags.plot)):
        if path and not path.absolute().parent.is_dir():
            raise ConfigError(f"--{name}={path}: there is no such folder")
    if flags.output and flags.output.suffix not in (".json", ".md"):
        raise ConfigError(f"--output={flags.output}: a file ends in .json or .md")


def _plot(path: Path, panels: dict[str, dict[str, float]]) -> None:
    from xlj.downstream import language_report

    try:
        language_report.plot(panels, path)
    except ImportError:
        print("no plot: matplotlib is missing (pip install -e '.[plots]')", file=sys.stderr)
    except ValueError as error:
        raise ConfigError(f"--plot={path}: {error}") from None


if __name__ == "__main__":
    with cli.readable_errors():
        run(_flags())
