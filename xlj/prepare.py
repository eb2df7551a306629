"""Makes the rows of a config ahead of training, and prints what became of the text.

    python -m xlj.prepare --config=configs/NAME.py [--config.data.workers=8]

`xlj.train` does the same on its first start; on several hosts, prepare first. Rows that are there
are left alone. A run that was killed goes on where it stopped. docs/data.md tells more.
"""

from absl import flags

from xlj import cli
from xlj.config import Config

_RUNNER = flags.DEFINE_string(
    "runner", "", "Apache Beam runner that makes the rows; empty for processes of this machine"
)
_PIPELINE = flags.DEFINE_multi_string(
    "pipeline", [], "an option for Beam, e.g. --pipeline=--direct_num_workers=4; may be repeated"
)


def run(config: Config) -> None:
    """Makes the rows, and prints the report."""
    from xlj.data.rows.making import ensure_rows
    from xlj.data.rows.report import report

    if config.init_from:
        from xlj.training.initialisation import adopt_vocabulary

        config = adopt_vocabulary(config)
    store = ensure_rows(config, _RUNNER.value, _PIPELINE.value)
    print(report(store, config.data.alpha))


if __name__ == "__main__":
    cli.main(run, __doc__)
