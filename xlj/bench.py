"""Speeds of this machine, and of the libraries that do the same, side by side.

    python -m xlj.bench --config=configs/xlm_r_base.py [--what=step,align] [--rows=8] [--length=128]

What is measured, and beside what:

  peak        a large matrix product; torch's
  step        the train step of MMLM, in each type; transformers' XLM-R with AdamW. On a CPU each
              runs in a process of its own, and the memory that these take is told
  objectives  the train step of each objective, whether the config trains it or not
  profile     the time of the train step of MMLM (or --objectives) by kind of kernel
  attention   each path of attention, forward and backward; torch's SDPA
  links       word alignment from given vectors; SimAlign's
  align       word alignment from text; SimAlign
  embed       sentence vectors from text; sentence-transformers
  prepare     sentence pairs to rows
  read        batches of the config's rows, which are made if they are not there
  start       what programs import; what theirs import

Everything is measured in one run, so that ratios hold even on a busy machine; times are medians.
`pip install -e '.[peers]'` installs the others; what is not installed is left out. `align` and
`embed` take an encoder of the config's sizes with random weights, the same for both, and sentences
of the phrasebook. Only `read` needs TensorFlow and seqio, and only where rows are to be made.
"""

import json
import os
from argparse import Namespace
from functools import partial
from pathlib import Path

from xlj import config as schema
from xlj.cli import command, outputs
from xlj.cli.parser import Parser, at_least
from xlj.config import ConfigError

_WHAT = (
    *("peak", "step", "objectives", "profile", "attention", "links", "align", "embed", "prepare"),
    *("read", "start"),
)


def _add_flags(parser: Parser) -> None:
    add = parser.add_argument
    add("--rows", metavar="N", type=at_least(1), default=8, help="rows of a step [8]")
    add("--length", metavar="N", type=at_least(32), default=128, help="tokens in a row [128]")
    add("--what", metavar="A,B", default="peak,step", help="of these, or all [peak,step]")
    add(
        "--objectives", metavar="A,B", default="", help="of --what=objectives [all], profile [mmlm]"
    )
    add("--repeats", metavar="N", type=at_least(1), default=5, help="times each is measured [5]")
    add("--json", metavar="FILE", type=Path, help="write what was measured there")
    add("--table", metavar="FILE", type=Path, help="write it as a table in Markdown")


@command.entry("bench", __doc__, _add_flags, schema)
def main(flags: Namespace) -> None:
    """Prints a line for each measurement, and writes them where it is told."""
    wanted = _WHAT if flags.what == "all" else [name.strip() for name in flags.what.split(",")]
    if not set(wanted) <= set(_WHAT):
        raise ConfigError(f"--what={flags.what}: there are {', '.join(_WHAT)}, and all")
    outputs.check_output("json", flags.json)
    outputs.check_output("table", flags.table, [("json", flags.json)])
    names = [name.strip() for name in flags.objectives.split(",") if name.strip()]
    there = flags.config.objectives.options
    if not set(names) <= set(there):
        raise ConfigError(f"--objectives={flags.objectives}: there are {', '.join(there)}")
    # What JAX does not hold of a GPU's memory its peers have.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    from xlj.benchmarking import (
        attention,
        inference,
        links,
        machine,
        profile,
        rows,
        start_up,
        train_steps,
    )
    from xlj.benchmarking.measurements import Measure, Measurement, Size, record, table
    from xlj.io import atomic

    measures: dict[str, Measure] = {
        "peak": machine.peak,
        "step": train_steps.step,
        "objectives": partial(train_steps.each_objective, names=names or tuple(there)),
        "profile": partial(profile.each_kind, names=names or ("mmlm",)),
        "attention": attention.each_path,
        "links": links.each_method,
        "align": inference.align,
        "embed": inference.embed,
        "prepare": rows.prepare,
        "read": rows.read,
        "start": start_up.each_import,
    }
    size = Size(flags.rows, flags.length, flags.repeats)
    config = flags.config.for_platform(jax.default_backend())
    if not {"step", "objectives", "profile"}.isdisjoint(wanted):
        train_steps.check_length(config, size)
    measured: list[Measurement] = []
    try:
        for name in wanted:
            for measurement in measures[name](config, size):
                print(measurement.line, flush=True)
                measured.append(measurement)
    finally:  # what was measured before an error too
        if flags.json:
            atomic.write(flags.json, json.dumps(record(measured), indent=2).encode())
        if flags.table:
            atomic.write(flags.table, table(measured).encode())


if __name__ == "__main__":
    raise SystemExit(main())
