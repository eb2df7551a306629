"""Checks of the paths and URLs in flags and config keys."""

import re
from pathlib import Path

from xlj.config.fields import ConfigError

BUCKETS = ("gs", "s3")
"""Schemes of the URLs that xlj can write to."""


def scheme_of(path: str | Path) -> str:
    """Returns the scheme of a URL, such as `gs`; empty for a local path."""
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", str(path))
    return match[1] if match else ""


def local_path(name: str, path: str | Path) -> Path:
    """Returns a local path with `~` expanded.

    Args:
      name: the flag or key with this path, for the error.

    Raises:
      ConfigError: if the path is a URL such as gs://bucket/run, which would otherwise create a
        folder named `gs:`.
    """
    if scheme_of(path):
        raise ConfigError(
            f"{name}={path} is a URL; {name} must be a local path. Copy or mount the data first"
        )
    return Path(path).expanduser()


def check_storable(name: str, path: str) -> None:
    """Checks that xlj can write to a path: a local path, gs://BUCKET/... or s3://BUCKET/...

    Raises:
      ConfigError: for any other URL; names the flag or key.
    """
    scheme = scheme_of(path)
    if not scheme:
        return
    if scheme not in BUCKETS:
        raise ConfigError(
            f"{name}={path}: it must be a local folder, or a folder in a bucket (gs:// or s3://)"
        )
    if not re.match(r"\w+://[^/]+/[^/]", path):
        raise ConfigError(f"{name}={path}: name a folder in the bucket, {scheme}://BUCKET/FOLDER")
