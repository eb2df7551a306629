"""Measures the speed of xlj on this machine, compared with other libraries.

    python -m xlj.bench --config=configs/xlm_r_base.py [--what=step,align] [--rows=8] [--length=128]

--what selects measurements. The library in brackets is the one that xlj is compared with:

  peak        a large matrix product (torch)
  step        the train step of MMLM in each number type (transformers' XLM-R with AdamW). On a CPU
              each number type runs in a separate process, whose memory is printed too
  objectives  the train step of each objective, whether or not the config trains it
  profile     the time of the train step of MMLM (or of --objectives) by kind of kernel
  attention   each implementation of attention, forward and backward (torch's SDPA)
  links       word alignment from vectors (SimAlign)
  align       word alignment from text (SimAlign)
  embed       sentence vectors from text (sentence-transformers)
  prepare     building rows from sentence pairs
  read        reading batches of the config's rows; missing rows are built first
  start       the time to import xlj, and xlj's modules for training, alignment and sentence
              vectors (transformers, SimAlign, sentence-transformers)

One run measures xlj and the other library one after the other, so ratios hold even on a busy
machine. Times are medians. `pip install -e '.[peers]'` installs the other libraries; libraries that
are not installed are skipped. `align` and `embed` use sentences of the phrasebook (xlj's embedded
corpus), and an encoder with the config's sizes and random weights; both libraries use this encoder.
Only `read` needs TensorFlow and seqio, and only to build rows.
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
    add("--rows", metavar="N", type=at_least(1), default=8, help="rows per step [8]")
    add("--length", metavar="N", type=at_least(32), default=128, help="tokens per row [128]")
    add(
        "--what",
        metavar="A,B",
        default="peak,step",
        help="measurements to make, separated by commas, or all [peak,step]",
    )
    add(
        "--objectives",
        metavar="A,B",
        default="",
        help="objectives that --what=objectives and --what=profile measure, separated by commas "
        "[objectives: all of the config; profile: mmlm]",
    )
    add("--repeats", metavar="N", type=at_least(1), default=5, help="repeats per measurement [5]")
    add("--json", metavar="FILE", type=Path, help="file for the measurements as JSON")
    add("--table", metavar="FILE", type=Path, help="file for the measurements as a Markdown table")


@command.entry("bench", __doc__, _add_flags, schema)
def main(flags: Namespace) -> None:
    """Prints a line for each measurement, and writes all measurements to --json and --table."""
    selected = _WHAT if flags.what == "all" else [name.strip() for name in flags.what.split(",")]
    if not set(selected) <= set(_WHAT):
        raise ConfigError(f"--what={flags.what}: the names are {', '.join(_WHAT)}, or all")
    outputs.check_output("json", flags.json)
    outputs.check_output("table", flags.table, [("json", flags.json)])
    names = [name.strip() for name in flags.objectives.split(",") if name.strip()]
    known = flags.config.objectives.options
    if not set(names) <= set(known):
        raise ConfigError(f"--objectives={flags.objectives}: the names are {', '.join(known)}")
    # Without this setting JAX would allocate most of a GPU's memory, which other libraries need.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    from xlj.io import atomic
    from xlj.tools.benchmarking import attention, inference, machine, profile, rows, train_steps
    from xlj.tools.benchmarking.measurements import Measure, Measurement, Size, record, table
    from xlj.training.revisions import pin
    from xlj.training.start import adopt_model

    measures: dict[str, Measure] = {
        "peak": machine.peak,
        "step": train_steps.step,
        "objectives": partial(train_steps.measure_objectives, names=names or tuple(known)),
        "profile": partial(profile.measure_kinds, names=names or ("mmlm",)),
        "attention": attention.measure_attention,
        "links": inference.measure_links,
        "align": inference.align,
        "embed": inference.embed,
        "prepare": rows.prepare,
        "read": rows.read,
        "start": machine.measure_imports,
    }
    size = Size(flags.rows, flags.length, flags.repeats)
    config = adopt_model(pin(flags.config)).for_platform(jax.default_backend())
    if not {"step", "objectives", "profile"}.isdisjoint(selected):
        train_steps.check_length(config, size)
    measured: list[Measurement] = []
    try:
        for name in selected:
            for measurement in measures[name](config, size):
                print(measurement.line, flush=True)
                measured.append(measurement)
    finally:  # if a measurement fails, the earlier measurements are written too
        if flags.json:
            atomic.write(flags.json, json.dumps(record(measured), indent=2).encode())
        if flags.table:
            atomic.write(flags.table, table(measured).encode())


if __name__ == "__main__":
    raise SystemExit(main())
