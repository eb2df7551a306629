"""Computes how often a phase of a run draws each language or pair, and the mean tokens of a row."""

from collections.abc import Mapping, Sequence

from xlj.config import Config, Data, Options, lookup
from xlj.data.rows.draws import BLOCK, draws_per_block, sampling_rates
from xlj.data.rows.store import RowStore, TaskRows


def tasks_of_length(store: RowStore, options: Options, config: Config) -> list[TaskRows]:
    """Returns the tasks with rows of an objective's kind and of the length that a config sets.

    A task is the rows of one language or pair (`store.TaskRows`). If all rows of this kind in the
    store have one length, returns all tasks, even if the config sets another length.

    Args:
      store: the row store.
      options: the options of the objective.
      config: the config of a phase.
    """
    tasks = store.tasks(options.rows_name)
    if len({task.length for task in tasks}) < 2:
        return list(tasks)
    length = lookup(config, options.row_kind.length)
    return [task for task in tasks if task.length == length]


def select_tasks(store: RowStore, options: Options, config: Config) -> list[TaskRows]:
    """Returns the tasks from which an objective draws rows.

    These are the tasks whose language or pair is in `data.sampled`; if there is no such task, all
    tasks. Tasks without training rows are left out.

    Args:
      store: the row store.
      options: the options of the objective.
      config: the config of a phase.
    """
    return _select(tasks_of_length(store, options, config), config.data)


def _select(tasks: Sequence[TaskRows], data: Data) -> list[TaskRows]:
    sampled = [task for task in tasks if _corpus_of(task.name) in data.shares]
    return [task for task in sampled or tasks if task.train.rows]


def count_draws(store: RowStore, options: Options, config: Config) -> Mapping[str, int]:
    """Returns how often a block of `draws.BLOCK` draws takes a row of each task, by name.

    Args:
      store: the row store.
      options: the options of the objective.
      config: the config of a phase.
    """
    tasks = tasks_of_length(store, options, config)
    return draws_of_tasks(tasks, config.data, options.sampled_by)


def draws_of_tasks(
    tasks: Sequence[TaskRows], data: Data, sampled_by: str = "tokens"
) -> Mapping[str, int]:
    """Returns how often a block of `draws.BLOCK` draws takes a row of each task, by name.

    Tasks that are not drawn are missing (`select_tasks`).

    Args:
      tasks: tasks with rows of one kind and length.
      data: the section `data` of the config of a phase.
      sampled_by: the size that determines the sampling rates, a field of `store.Split`.
    """
    sizes = {task.name: getattr(task.train, sampled_by) for task in _select(tasks, data)}
    shares, factors = sampling_rates(sizes, data.alpha), data.shares
    if any(factor != 1 for factor in factors.values()):
        shares = {name: p * factors.get(_corpus_of(name), 1.0) for name, p in shares.items()}
        total = sum(shares.values())
        shares = {name: p / total for name, p in shares.items()}
    return draws_per_block(shares)


def _corpus_of(task: str) -> str:
    """Returns the language or pair in the name of a task."""
    return task.partition(".")[2]


def mean_tokens_per_row(store: RowStore, options: Options, config: Config) -> float:
    """Computes the mean number of tokens, without padding, of the rows that an objective draws.

    Args:
      store: the row store.
      options: the options of the objective.
      config: the config of a phase.
    """
    counts = count_draws(store, options, config)
    means = {
        task.name: task.train.tokens / task.train.rows for task in store.tasks(options.rows_name)
    }
    return sum(count * means[name] for name, count in counts.items()) / BLOCK
