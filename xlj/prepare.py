"""Builds the rows of a config ahead of training, and prints what became of the text.

    python -m xlj.prepare --config=configs/NAME.py [--config.data.workers=8]

`xlj.train` does the same on its first start; on several hosts, prepare first. Rows that are there
are left alone. A run that was killed goes on where it stopped. At the end it prints the command
that trains from the rows without the text. docs/data.md tells more.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from xlj import cli
from xlj.config import Config

_RUNNER = flags.DEFINE_string(
    "runner", "", "Apache Beam runner that builds the rows; empty for processes of this machine"
)
_PIPELINE = flags.DEFINE_multi_string(
    "pipeline", [], "an option for Beam, e.g. --pipeline=--direct_num_workers=4; may be repeated"
)


def run(config: Config) -> None:
    """Builds the rows, and prints the report and the command that trains from them."""
    from xlj.data.rows.opening import with_rows
    from xlj.data.rows.preparing import prepare_rows
    from xlj.data.rows.report import report

    config = with_rows(config)
    if config.init_from:
        from xlj.training.initialisation import adopt_vocabulary

        config = adopt_vocabulary(config)
    store = prepare_rows(config, _RUNNER.value, _PIPELINE.value)
    print(report(store, config.data.alpha))
    print(f"\nto train from these rows, without the text:\n  {_train(sys.argv[1:], store.path)}")


def _train(arguments: Sequence[str], rows: Path) -> str:
    """The command line of training from finished rows: no key about text is in it."""
    kept, given = [], iter(arguments)
    for argument in given:
        name, equals, _ = argument.lstrip("-").partition("=")
        of_text = name.startswith("config.data.") and name != "config.data.alpha"
        if not of_text and name not in ("runner", "pipeline"):
            kept.append(argument)
        elif not equals:
            next(given, None)  # its value
    return shlex.join(["python", "-m", "xlj.train", *kept, f"--config.data.rows={rows}"])


if __name__ == "__main__":
    cli.main(run, __doc__)
