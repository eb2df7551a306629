"""How often each phase of a run draws each language or pair, and the mean tokens of a row."""

from collections.abc import Mapping

from xlj.config import ROW_KINDS, Config, Options, lookup
from xlj.data.rows.draws import BLOCK, draws_per_block, rates
from xlj.data.rows.store import RowStore, TaskRows


def tasks_of_length(store: RowStore, options: Options, config: Config) -> list[TaskRows]:
    """Returns the tasks that have an objective's kind of rows, in the length of the phase's config.

    If all of them have one length, the length is not compared.
    """
    tasks = store.tasks(options.rows)
    if len({task.length for task in tasks}) < 2:
        return list(tasks)
    length = lookup(config, ROW_KINDS[options.rows].length)
    return [task for task in tasks if task.length == length]


def tasks(store: RowStore, options: Options, config: Config) -> list[TaskRows]:
    """Returns the tasks that an objective draws rows from, with the config of a phase: those that
    `data.sampled` names, or all."""
    candidates = tasks_of_length(store, options, config)
    named = [task for task in candidates if _corpus(task.name) in config.data.shares]
    return [task for task in named or candidates if task.train.rows]


def counts(store: RowStore, options: Options, config: Config) -> Mapping[str, int]:
    """Returns how often a block of draws (`draws.BLOCK`) draws each of these tasks, by name."""
    of_phase = tasks(store, options, config)
    sizes = {task.name: getattr(task.train, options.sampled_by) for task in of_phase}
    shares, factors = rates(sizes, config.data.alpha), config.data.shares
    if any(factor != 1 for factor in factors.values()):
        shares = {name: p * factors.get(_corpus(name), 1.0) for name, p in shares.items()}
        total = sum(shares.values())
        shares = {name: p / total for name, p in shares.items()}
    return draws_per_block(shares)


def _corpus(task: str) -> str:
    """Returns the language or pair in a task's name."""
    return task.partition(".")[2]


def tokens_of_row(store: RowStore, options: Options, config: Config) -> float:
    """Computes the mean number of tokens, without padding, of the rows that an objective draws."""
    drawn = counts(store, options, config)
    of_task = {task.name: task.train.tokens / task.train.rows for task in store.tasks(options.rows)}
    return sum(count * of_task[name] for name, count in drawn.items()) / BLOCK
