"""Paths and URLs that flags and keys name: those that cannot be used are refused by name."""

import re
from pathlib import Path

from xlj.config.fields import ConfigError

BUCKETS = ("gs", "s3")
"""Kinds of URLs that files are written to."""


def scheme_of(path: str | Path) -> str:
    """What a URL begins with before its colon, such as `gs`; empty of a path of this machine."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", str(path))
    return found[1] if found else ""


def local_path(named: str, path: str | Path) -> Path:
    """A path, with `~` for the home folder.

    Args:
      named: the flag or key that names it, for the error.

    Raises:
      ConfigError: if it is a URL such as gs://bucket/run, of which a folder `gs:` would be made.
    """
    if scheme_of(path):
        raise ConfigError(
            f"{named}={path} is a URL; only paths of this machine can be read and written there. "
            "Copy or mount it"
        )
    return Path(path).expanduser()


def check_storable(named: str, path: str) -> None:
    """Refuses a URL that files cannot be written to: all but gs://BUCKET/... and s3://BUCKET/...;
    the `ConfigError` names the flag or key."""
    scheme = scheme_of(path)
    if not scheme:
        return
    if scheme not in BUCKETS:
        raise ConfigError(
            f"{named}={path}: rows lie in a folder of this machine, or in a bucket, gs:// or s3://"
        )
    if not re.match(r"\w+://[^/]+/[^/]", path):
        raise ConfigError(f"{named}={path}: name a folder of the bucket, {scheme}://BUCKET/FOLDER")
