"""Replaces the branches of hf:// URLs in a config by commits, so that all hosts and all processes
read the same files."""

from typing import Any

from xlj.checkpoints import reading
from xlj.config import Config, ConfigError, build
from xlj.config.fields import as_tree
from xlj.distributed import hosts
from xlj.io import hub
from xlj.io.storage import AnyPath


def pin(config: Config, workdir: AnyPath | None = None) -> Config:
    """Returns the config with a commit in place of each branch or tag of an hf:// URL.

    Process 0 asks the hub, and all processes get its answer. A resumed run gets the commits of its
    checkpoint, also if the branch has moved since. All processes must call this.

    Args:
      workdir: of the run, to find its checkpoints; None for a command that is no run.

    Raises:
      ConfigError: if a repository or revision does not exist or cannot be read.
    """
    tree = as_tree(config)
    if "hf://" not in str(tree):
        return config
    earliest = reading.earliest(workdir) if workdir is not None else None
    recorded = earliest.config() if earliest is not None else None
    return build(hosts.broadcast(lambda: _pinned(tree, recorded)))


def _pinned(value: Any, recorded: Any) -> Any:
    """Replaces branches in all strings of a tree.

    Args:
      recorded: the value at the same place of the checkpoint's config.
    """
    if isinstance(value, dict):
        named = recorded if isinstance(recorded, dict) else {}
        return {name: _pinned(each, named.get(name)) for name, each in value.items()}
    if isinstance(value, list | tuple):
        texts = recorded if isinstance(recorded, list | tuple) else ()
        same = {hub.without_revisions(text): text for text in texts}
        return [_pinned(text, same.get(hub.without_revisions(text))) for text in value]
    if not isinstance(value, str) or "hf://" not in value:
        return value
    if isinstance(recorded, str):
        if hub.without_revisions(recorded) == hub.without_revisions(value):
            return recorded
    try:
        return hub.pinned(value)
    except OSError as error:
        raise ConfigError(f"{value} cannot be read ({error})") from error
