"""The rows of a config: opened, or built from its text first."""

from collections.abc import Sequence

from xlj.config import Config, ConfigError
from xlj.data.rows.building import build_rows
from xlj.data.rows.opening import open_rows
from xlj.data.rows.recipe import recipe_of
from xlj.data.rows.store import RowStore
from xlj.data.text.checking import check_text
from xlj.io.processes import in_child


def prepare_rows(
    config: Config, runner: str = "", arguments: Sequence[str] = (), processes: int = 1
) -> RowStore:
    """The row store of a config. If `data.rows` names none, the text is read and checked; if there
    are no rows of it yet, they are built in a process of its own, so that TensorFlow never shares
    this one's memory or accelerator. It stops when this one does.

    Args:
      runner: an Apache Beam runner that builds the rows; empty for processes on this machine.
      arguments: further pipeline options for Beam.
      processes: how many ask for the rows; of several none builds them.

    Raises:
      ConfigError: if the config, its text or the rows that it names cannot be used, or several
        processes ask for rows that are not there.
      RowStoreError: if the rows are there but damaged.
    """
    if config.data.rows:
        return open_rows(config)
    recipe = recipe_of(config, check_text(config.data))
    if recipe.finished:
        return RowStore(recipe.folder)
    if processes > 1:
        raise ConfigError(
            f"several processes train, and data.cache={config.data.cache} holds no finished rows "
            "of this config; build them once with python -m xlj.prepare and the same config, in a "
            "folder that every host sees"
        )
    return RowStore(in_child("building rows", build_rows, recipe, runner, tuple(arguments)))
