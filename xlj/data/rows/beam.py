"""The same units, made by an Apache Beam pipeline: on this machine, or on a cluster.

Every worker must see the inputs and the store at the paths of the config (a shared file system).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xlj.config import ConfigError
from xlj.data.rows import units
from xlj.data.rows.units import Settings, Unit
from xlj.data.text.text_tasks import TextTask


def make_units(
    tasks: Sequence[TextTask],
    settings: Mapping[str, Settings],
    runner: str,
    arguments: Sequence[str] = (),
) -> None:
    """Makes the missing units of these tasks.

    Args:
      settings: of each task.
      runner: a Beam runner's name, such as DirectRunner.
      arguments: further pipeline options, as on Beam's command line.

    Raises:
      ConfigError: if Beam is not installed.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise ConfigError(f"--runner={runner} needs apache-beam ({error})") from error

    options = PipelineOptions([f"--runner={runner}", *arguments])
    with beam.Pipeline(options=options) as pipeline:
        _ = (
            pipeline
            | "tasks" >> beam.Create([(task, settings[task.name]) for task in tasks])
            | "read" >> beam.FlatMapTuple(_read)
            | "spread" >> beam.Reshuffle()
            | "make" >> beam.MapTuple(units.make)
        )


def _read(task: TextTask, settings: Settings) -> Iterator[tuple[Unit, Settings]]:
    from xlj.data.text.seqio_tasks import (
        missing_units,  # reading imports TensorFlow: on the workers only
    )

    for unit in missing_units(task, settings):
        yield unit, settings
