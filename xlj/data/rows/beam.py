"""The same units, built by an Apache Beam pipeline: on this machine, or on a cluster.

Every worker must see the inputs and the store at the paths of the config (a shared file system).
"""

from collections.abc import Iterator, Sequence

from xlj.config import ConfigError
from xlj.data.rows.units import Plan, Unit, build_unit, missing_units


def build_units(plans: Sequence[Plan], runner: str, arguments: Sequence[str] = ()) -> None:
    """Builds the missing units of these tasks.

    Args:
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
            | "tasks" >> beam.Create(plans)
            | "read" >> beam.FlatMap(_read)
            | "spread" >> beam.Reshuffle()
            | "build" >> beam.MapTuple(build_unit)
        )


def _read(plan: Plan) -> Iterator[tuple[Plan, Unit]]:
    for unit in missing_units(plan):
        yield plan, unit
