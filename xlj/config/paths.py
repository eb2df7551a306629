"""Paths that flags and keys name: on this machine, since nothing reads or writes URLs."""

import re
from pathlib import Path

from xlj.config.fields import ConfigError


def local_path(named: str, path: str | Path) -> Path:
    """A path, with `~` for the home folder.

    Args:
      named: the flag or key that names it, for the error.

    Raises:
      ConfigError: if it is a URL such as gs://bucket/run, of which a folder `gs:` would be made.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(path)):
        raise ConfigError(
            f"{named}={path} is a URL; only paths of this machine can be read and written. Copy or "
            "mount it there"
        )
    return Path(path).expanduser()
