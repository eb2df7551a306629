"""The seqio Mixtures `xlj.text` and `xlj.pairs`: a config's Tasks at the rates of training."""

from xlj.config import ROW_KINDS, Config
from xlj.data.rows.rates import rates
from xlj.data.rows.recipe import recipe_of
from xlj.data.rows.store import RowStore
from xlj.data.text import seqio_tasks
from xlj.data.text.checking import check_text
from xlj.data.text.seqio_tasks import seqio_name
from xlj.io.quiet import import_quietly


def register(config: Config) -> list[str]:
    """Registers a config's Tasks, and its Mixtures once its rows are there; returns their names;
    earlier ones of the same names are replaced.

    Raises:
      ConfigError: if the text or the vocabulary cannot be used.
    """
    recipe = recipe_of(config, check_text(config.data))
    names = []
    for task in dict.fromkeys(recipe.text.tasks + recipe.row_tasks):
        seqio_tasks.register(task)
        names.append(seqio_name(task.name))
    if not recipe.finished:
        return names
    seqio, store = import_quietly("seqio"), RowStore(recipe.folder)
    for kind in ROW_KINDS:
        if tokens := {task.name: task.train.tokens for task in store.tasks(kind)}:
            name = f"xlj.{kind}"
            if name in seqio.MixtureRegistry.names():
                seqio.MixtureRegistry.remove(name)
            shares = rates(tokens, config.data.alpha)
            seqio.MixtureRegistry.add(name, [(seqio_name(t), p) for t, p in shares.items()])
            names.append(name)
    return names
