"""Speeds of this machine: matrix products, the train step, reading rows; and a peer beside them.

    python -m xlj.bench --config=configs/xlm_r_base.py [--rows=8] [--length=128] [--what=peak,step]

Everything is measured in one run, so that ratios hold even on a busy machine; times are medians.
`peer` is XLM-R's masked language model as transformers ships it, of the same sizes and with the
same optimizer; it needs `pip install -e '.[parity]'`. `read` makes the config's rows if they are
not there.
`objectives` is the cost of each objective beside MMLM's, in time and memory.
"""

from argparse import Namespace

from xlj import config as schema
from xlj.cli import command
from xlj.cli.parser import Parser, at_least
from xlj.config import ConfigError

_WHAT = ("peak", "step", "objectives", "read", "peer")


def _add_flags(parser: Parser) -> None:
    add = parser.add_argument
    add("--rows", metavar="N", type=at_least(1), default=8, help="rows of a step [8]")
    add("--length", metavar="N", type=at_least(32), default=128, help="tokens in a row [128]")
    add("--what", metavar="A,B", default="peak,step", help=f"of {', '.join(_WHAT)} [peak,step]")
    add("--repeats", metavar="N", type=at_least(1), default=5, help="times each is measured [5]")


@command.entry("bench", __doc__, _add_flags, schema)
def main(flags: Namespace) -> None:
    """Prints a line for each measurement."""
    wanted = [name.strip() for name in flags.what.split(",")]
    if not set(wanted) <= set(_WHAT):
        raise ConfigError(f"--what={flags.what}: there are {', '.join(_WHAT)}")
    from xlj.benchmarking import machine, train_steps

    size = machine.Size(flags.rows, flags.length, flags.repeats)
    measurements = {
        "peak": machine.peak,
        "step": train_steps.step,
        "objectives": train_steps.each_objective,
        "read": machine.read,
        "peer": train_steps.peer,
    }
    if not {"step", "objectives", "peer"}.isdisjoint(wanted):
        train_steps.check_length(flags.config, size)
    for name in wanted:
        measurements[name](flags.config, size)


if __name__ == "__main__":
    raise SystemExit(main())
